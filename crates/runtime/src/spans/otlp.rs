//! Spans as OTLP has them. The one place that knows its messages; they travel over `export`.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as trace, ResourceSpans, ScopeSpans, Status};
use prost::Message;
use protocol::time::Time;

use super::{Attribute, Span};

/// The body of one export. `epoch`: Unix time when the clock of the spans was zero.
pub(super) fn request(service: &str, member: &str, epoch: Duration, spans: Vec<Span>) -> Vec<u8> {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let resource = Resource {
        attributes: vec![
            attribute("service.name", text(service)),
            attribute("service.instance.id", text(member)),
        ],
        ..Resource::default()
    };
    let scope = InstrumentationScope {
        name: "distcache".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let mut all = Vec::new();
    for span in spans {
        // Zero is no id.
        let trace_id: u128 = rand::random_range(1..=u128::MAX);
        push(span, trace_id, Vec::new(), epoch, &mut all);
    }
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: all, ..ScopeSpans::default() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn push(span: Span, trace_id: u128, parent_span_id: Vec<u8>, epoch: Duration, all: &mut Vec<trace::Span>) {
    let span_id = rand::random_range(1..=u64::MAX).to_be_bytes().to_vec();
    let nano = |time: Time| (epoch + time.since(Time(0))).as_nanos() as u64;
    let kind = if span.client { SpanKind::Client } else { SpanKind::Server };
    let status = span.error.map(|message| Status { message, code: StatusCode::Error.into() });
    all.push(trace::Span {
        trace_id: trace_id.to_be_bytes().to_vec(),
        span_id: span_id.clone(),
        parent_span_id,
        name: span.name,
        kind: kind.into(),
        start_time_unix_nano: nano(span.start),
        end_time_unix_nano: nano(span.end),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status,
        ..trace::Span::default()
    });
    for child in span.children {
        push(child, trace_id, span_id.clone(), epoch, all);
    }
}

fn attribute(key: &str, value: Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => Value::StringValue(text),
        Attribute::Number(number) => Value::IntValue(number),
        Attribute::Truth(truth) => Value::BoolValue(truth),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
