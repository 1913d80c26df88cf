//! The router inside an application.

use std::time::Duration;

use crate::stage::Stage;
use router::{AsyncClient, Client, Error};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use wire::resp::Value;

#[test]
fn values_and_errors() {
    let stage = Stage::new(|_| {});
    let client = Client::connect(&stage.config).unwrap();
    assert_eq!(client.get("k").unwrap(), None);
    client.set("k", "1").unwrap();
    assert_eq!(client.get("k").unwrap().unwrap(), "1");
    assert_eq!(client.command(&["INCR", "k"]).unwrap(), Value::Integer(2));
    assert!(client.del("k").unwrap());
    assert!(!client.del("k").unwrap());
    assert!(
        matches!(client.command(&["NOSUCH"]), Err(Error::Reply(text)) if text.starts_with("ERR unknown"))
    );
    assert!(matches!(client.command(&["CLIENT", "REPLY", "OFF"]), Err(Error::Reply(_))));
    assert!(
        matches!(client.command(&["punsubscribe"]), Err(Error::Reply(text)) if text.contains("subscribe"))
    );
    assert!(matches!(client.command::<&str>(&[]), Err(Error::Reply(_))));
    assert!(matches!(client.command(&["QUIT"]), Ok(Value::Simple(_)) | Err(Error::Closed)));
    assert_eq!(client.get("k").unwrap(), None, "one call's QUIT is not the next one's");
}

#[test]
fn a_pipeline_longer_than_the_limit_comes_back_whole_and_in_order() {
    let stage = Stage::new(|config| config.limits.pipeline_max = 8);
    let client = Client::connect(&stage.config).unwrap();
    let mut pipeline = client.pipeline();
    for _ in 0..500 {
        pipeline = pipeline.command(&["INCR", "n"]).command(&["GET", "n"]);
    }
    let replies = pipeline.run().unwrap();
    assert_eq!(replies.len(), 1_000);
    for (index, pair) in replies.chunks(2).enumerate() {
        let number = index as i64 + 1;
        assert!(matches!(&pair[0], Ok(Value::Integer(got)) if *got == number));
        assert!(matches!(&pair[1], Ok(Value::Bulk(got)) if *got == number.to_string()));
    }
    assert!(client.pipeline().run().unwrap().is_empty());
}

#[test]
fn threads_share_a_client_and_do_not_wait_for_each_other() {
    let stage = Stage::new(|_| {});
    let client = Client::connect(&stage.config).unwrap();
    let blocked = client.clone();
    // The played shim never answers it; it ends with the client's last clone but one.
    let blocked = std::thread::spawn(move || blocked.command(&["BLPOP", "queue", "0"]));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || (0..200).for_each(|_| drop(client.command(&["INCR", "n"]).unwrap())))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(client.get("n").unwrap().unwrap(), "800");
    client.close();
    assert!(matches!(blocked.join().unwrap(), Err(Error::Closed)));
    assert!(matches!(client.get("n"), Err(Error::Closed)));
}

#[test]
fn a_client_with_another_configuration_is_told_what_differs() {
    let stage = Stage::new(|_| {});
    let mut config = (*stage.config).clone();
    config.shims.push(config.shims[0].clone());
    config.shims[1].id = "shim-1".to_owned();
    let error = Client::connect(&config).unwrap_err().to_string();
    assert!(error.contains("refuse this client") && error.contains("[[shim]] entries"), "{error}");
    config = (*stage.config).clone();
    config.cluster.secret = Some(config::Secret(*b"another secret!!"));
    let error = Client::connect(&config).unwrap_err().to_string();
    assert!(error.contains("the same `secret`"), "{error}");
}

#[test]
fn a_cluster_that_is_not_there_is_an_error() {
    let mut stage = Stage::new(|_| {});
    let mut config = (*stage.config).clone();
    config.shims[0].listen = "127.0.0.1:1".parse().unwrap();
    let error = Client::connect(&config).unwrap_err();
    assert!(error.to_string().contains("is the cluster running?"), "{error}");
    stage.stop.stop();
    assert!(stage.router.take().unwrap().join());
}

#[test]
fn futures_and_threads_share_a_client() {
    let stage = Stage::new(|_| {});
    let client = Client::connect(&stage.config).unwrap();
    let threads: Vec<_> = (0..6)
        .map(|own| {
            let client = client.clone();
            std::thread::spawn(move || {
                for round in 0..300 {
                    client.command(&["INCR", "n"]).unwrap();
                    let key = format!("thread-{own}");
                    client.set(&key, round.to_string()).unwrap();
                    assert_eq!(client.get(&key).unwrap().unwrap(), round.to_string());
                }
            })
        })
        .collect();
    for runtime in
        [Builder::new_current_thread().build().unwrap(), Builder::new_multi_thread().build().unwrap()]
    {
        let client = AsyncClient::from(client.clone());
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for own in 0..40 {
                let client = client.clone();
                tasks.spawn(async move {
                    for round in 0..50 {
                        client.command(&["INCR", "n"]).await.unwrap();
                        let key = format!("task-{own}");
                        client.set(&key, round.to_string()).await.unwrap();
                        assert_eq!(client.get(&key).await.unwrap().unwrap(), round.to_string());
                        let replies =
                            client.pipeline().command(&["INCR", &key]).command(&["DEL", &key]).run().await;
                        assert!(matches!(replies.unwrap()[1], Ok(Value::Integer(1))));
                    }
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap();
            }
        });
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(client.get("n").unwrap().unwrap(), (6 * 300 + 2 * 40 * 50).to_string());
}

#[test]
fn a_future_connects_and_one_that_is_dropped_is_forgotten() {
    let stage = Stage::new(|_| {});
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let client = AsyncClient::connect(&stage.config).await.unwrap();
        for round in 0..50 {
            // The played shim never answers it.
            let blocked = client.command(&["BLPOP", "queue", "0"]);
            assert!(tokio::time::timeout(Duration::from_millis(1), blocked).await.is_err());
            client.set("k", round.to_string()).await.unwrap();
            assert_eq!(client.get("k").await.unwrap().unwrap(), round.to_string());
        }
        assert!(matches!(client.command::<&str>(&[]).await, Err(Error::Reply(_))));
        assert!(client.pipeline().run().await.unwrap().is_empty());
        assert!(client.del("k").await.unwrap());
    });
}

#[test]
fn whoever_waits_learns_of_the_end() {
    let stage = Stage::new(|_| {});
    let client = Client::connect(&stage.config).unwrap();
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || client.command(&["BLPOP", "queue", "0"]))
        })
        .collect();
    let runtime = Builder::new_multi_thread().build().unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let client = AsyncClient::from(client.clone());
            runtime.spawn(async move { client.command(&["BLPOP", "queue", "0"]).await })
        })
        .collect();
    // Some of them are there by then, and some are not.
    (0..100).for_each(|_| drop(client.command(&["INCR", "n"]).unwrap()));
    client.close();
    threads.into_iter().for_each(|thread| assert!(matches!(thread.join().unwrap(), Err(Error::Closed))));
    for task in tasks {
        assert!(matches!(runtime.block_on(task).unwrap(), Err(Error::Closed)));
    }
}

#[test]
fn a_cluster_that_is_not_there_is_an_error_of_a_future_too() {
    let stage = Stage::new(|_| {});
    let mut config = (*stage.config).clone();
    config.shims[0].listen = "127.0.0.1:1".parse().unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(AsyncClient::connect(&config)).unwrap_err();
    assert!(error.to_string().contains("is the cluster running?"), "{error}");
}
