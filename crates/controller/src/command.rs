//! What somebody sends who wants to change the cluster, and how it is refused. Not what comes of it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Why something is not answered.
#[derive(Debug)]
pub(crate) struct HttpProblem(StatusCode, String);

impl HttpProblem {
    pub(crate) fn new(code: StatusCode, what: impl ToString) -> HttpProblem {
        HttpProblem(code, what.to_string())
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// The body of a request that changes the cluster.
#[derive(Debug)]
pub(crate) struct CommandBody(Bytes);

impl CommandBody {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, HttpProblem> {
        serde_json::from_slice(&self.0).map_err(|error| HttpProblem::new(StatusCode::BAD_REQUEST, error))
    }

    pub(crate) fn read_if_any<T: DeserializeOwned>(&self) -> Result<Option<T>, HttpProblem> {
        if self.0.is_empty() { Ok(None) } else { self.read() }
    }
}

impl<S: Send + Sync> FromRequest<S> for CommandBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<CommandBody, Response> {
        let body = Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        Ok(CommandBody(body))
    }
}
