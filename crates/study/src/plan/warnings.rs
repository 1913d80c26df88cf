//! What an operator should know about a plan, and do. Nothing is computed here.

use super::{CapacityPlacing, ClusterPlan, OperatorFacts};

pub(super) fn of(facts: &OperatorFacts, plan: &ClusterPlan) -> Vec<String> {
    let all = [
        written(facts, plan),
        writes(facts, plan),
        short(facts, plan),
        alone(plan),
        everything(facts, plan),
        unequal(plan),
    ];
    all.into_iter().flatten().collect()
}

/// Writes keep an object from as many copies as its reads would take.
fn written(facts: &OperatorFacts, plan: &ClusterPlan) -> Option<String> {
    let share = plan.worst_x.map_or(plan.hottest, |x| 1.0 / x as f64);
    let reads = share * plan.throughput * (1.0 - facts.write_ratio);
    (plan.limit == "object" && facts.write_ratio > 0.0).then(|| {
        format!(
            "the hottest object is read {reads:.0} times/s at {:.0} requests/s, which is all that its copies serve, and its writes \
             allow no more than {}: a copy has to answer four reads per write, and invalidations have half of its server at most. Split it into several keys, or take faster nodes",
            plan.throughput, plan.degree,
        )
    })
}

fn writes(facts: &OperatorFacts, plan: &ClusterPlan) -> Option<String> {
    (facts.write_ratio > plan.write_ratio_max).then(|| {
        format!(
            "{:.1} % of the requests write, and above {:.1} % each copy costs its server more than it takes off it: \
             do not cache these keys (a [[policy]] with cache = \"never\" for their prefix)",
            100.0 * facts.write_ratio,
            100.0 * plan.write_ratio_max,
        )
    })
}

/// Less than the servers could do if they were evenly loaded.
fn short(facts: &OperatorFacts, plan: &ClusterPlan) -> Option<String> {
    if plan.throughput >= 0.8 * plan.target {
        return None;
    }
    let remedy = match plan.limit {
        // The other warning says it.
        "object" if facts.write_ratio > 0.0 => return None,
        "object" => "more objects on each node, which its copies find full",
        "server" if facts.write_ratio > 0.0 => {
            "fewer writes to the hottest objects, or more and faster servers"
        }
        "server" => "more or faster servers",
        _ => "more or faster nodes in that layer",
    };
    Some(format!(
        "{:.0} requests/s are {:.0} % of what the servers can do together; what limits it is the {}: {remedy}",
        plan.throughput,
        100.0 * plan.throughput / plan.target,
        plan.limit,
    ))
}

fn alone(plan: &ClusterPlan) -> Option<String> {
    (plan.shape.nodes() == 1).then(|| {
        "one node carries all cached objects: while it is down, hot objects load their servers as without a cache; \
         a second node in the layer halves that"
            .to_owned()
    })
}

fn everything(facts: &OperatorFacts, plan: &ClusterPlan) -> Option<String> {
    (plan.shape.cached >= facts.objects as f64).then(|| {
        format!(
            "balance would take {:.0} cached objects and there are {} in all: every node may hold all of its part",
            plan.shape.cached, facts.objects,
        )
    })
}

fn unequal(plan: &ClusterPlan) -> Option<String> {
    (plan.placing == CapacityPlacing::Uniform).then(|| {
        "for so many servers the model gives all of them equal parts; those of the product's ring differ by some per \
         cent, so count on a tenth less where servers are the limit"
            .to_owned()
    })
}
