//! What a configuration with `[tls]` tables is told that names the wrong files.

use config::Config;
use runtime::tls::Certificates;

use crate::authority::Authority;

const MEMBERS: &str = r#"
[cluster]
secret = "00112233445566778899aabbccddeeff"
[[layer]]
name = "leaf"
partition = "rack"
[[node]]
id = "leaf-0"
layer = "leaf"
rack = "r0"
listen = "127.0.0.1:7200"
[[shim]]
id = "shim-0"
rack = "r0"
listen = "127.0.0.1:7100"
"#;

/// A configuration, and what its files hold.
type Loaded = Result<(Config, Certificates), String>;

pub(crate) fn load(authority: &Authority, tables: &str, router: &str) -> Loaded {
    load_members(authority, MEMBERS, tables, router)
}

fn load_members(authority: &Authority, members: &str, tables: &str, router: &str) -> Loaded {
    let file = authority.path("cluster.toml");
    let router = format!("[[router]]\nid = \"router-0\"\n{router}\n");
    std::fs::write(&file, format!("{members}\n{router}\n{tables}")).unwrap();
    let config = Config::load(&file).map_err(|error| error.to_string())?;
    let certificates = Certificates::load(&config).map_err(|error| error.to_string())?;
    Ok((config, certificates))
}

/// The line that a configuration with `tables` gets must say all of `parts`.
fn refuses(authority: &Authority, tables: &str, router: &str, parts: &[&str]) {
    let error = load(authority, tables, router).unwrap_err();
    for part in parts {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
}

const ROUTER: &str = "listen_tls = \"127.0.0.1:6380\"";
const CLIENTS: &str = "[tls.clients]\ncertificate_file = \"a.crt\"\nkey_file = \"a.key\"\n";

#[test]
fn wrong_files_are_named_with_their_key_and_what_is_wrong() {
    let authority = Authority::new();
    let missing = ["[tls.clients] certificate_file = ", "a.crt\"", "there is no such file"];
    refuses(&authority, CLIENTS, ROUTER, &missing);
    authority.sign("a");
    authority.sign("b");
    assert!(load(&authority, CLIENTS, ROUTER).is_ok());

    let foreign = CLIENTS.replace("a.key", "b.key");
    refuses(
        &authority,
        &foreign,
        ROUTER,
        &["[tls.clients] key_file = ", "b.key", "does not belong", "a.crt"],
    );
    let swapped = CLIENTS.replace("a.key", "a.crt");
    refuses(&authority, &swapped, ROUTER, &["[tls.clients] key_file = ", "no private key"]);
    let swapped = CLIENTS.replace("a.crt", "a.key");
    refuses(&authority, &swapped, ROUTER, &["[tls.clients] certificate_file = ", "no certificate"]);
    std::fs::write(authority.path("a.crt"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
        .unwrap();
    refuses(&authority, CLIENTS, ROUTER, &["[tls.clients] certificate_file = ", "a.crt"]);
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let authority = Authority::new();
    authority.sign("a");
    let with = |more: &str| format!("{CLIENTS}{more}\n");
    refuses(
        &authority,
        &with("ca_file = \"ca.crt\""),
        ROUTER,
        &["[tls.clients] ca_file", "client_certificates"],
    );
    let required = with("client_certificates = \"required\"");
    refuses(&authority, &required, ROUTER, &["[tls.clients] ca_file is missing"]);
    refuses(&authority, &with("cert = 1"), ROUTER, &["unknown key `cert`", "certificate_file"]);
    refuses(&authority, "", ROUTER, &["listen_tls", "[tls.clients]"]);
    refuses(&authority, CLIENTS, "", &["router-0", "listen is missing"]);
    let required = with("client_certificates = \"required\"\nca_file = \"ca.crt\"");
    assert!(load(&authority, &required, ROUTER).is_ok());
}

#[test]
fn beyond_loopback_only_tls_with_authentication_may_listen_unless_told() {
    let authority = Authority::new();
    authority.sign("a");
    let plain = "listen = \"0.0.0.0:6379\"";
    refuses(
        &authority,
        CLIENTS,
        plain,
        &["router-0", "listen = \"0.0.0.0:6379\"", "listen_tls", "insecure_listen"],
    );
    let insecure = format!("{CLIENTS}\n[security]\ninsecure_listen = true\n");
    assert!(load(&authority, &insecure, plain).is_ok());
    let secured = "listen_tls = \"0.0.0.0:6380\"";
    let remedies =
        ["router-0", "listen_tls = \"0.0.0.0:6380\"", "[[user]]", "client_certificates", "insecure_listen"];
    refuses(&authority, CLIENTS, secured, &remedies);
    let user =
        |name: &str, rules: &str| format!("{CLIENTS}\n[[user]]\nname = \"{name}\"\nrules = \"{rules}\"\n");
    refuses(&authority, &user("default", "on nopass ~app:* +@all"), secured, &remedies);
    assert!(load(&authority, &user("app", "on >secret ~app:* +@all"), secured).is_ok());
    // Authentication is no encryption.
    refuses(&authority, &user("app", "on >secret ~* +@all"), plain, &["listen_tls", "insecure_listen"]);
    let certified = format!("{CLIENTS}client_certificates = \"required\"\nca_file = \"ca.crt\"\n");
    assert!(load(&authority, &certified, secured).is_ok());
}

#[test]
fn members_may_listen_beyond_loopback_with_tls_between_them() {
    let authority = Authority::new();
    authority.sign("a");
    let public = MEMBERS.replace("127.0.0.1:7200", "0.0.0.0:7200");
    let peers = "[tls.peers]\ncertificate_file = \"a.crt\"\nkey_file = \"a.key\"\nca_file = \"ca.crt\"\n";
    let plain = "listen = \"127.0.0.1:6379\"";
    let error = load_members(&authority, &public, "", plain).unwrap_err();
    assert!(
        error.contains("leaf-0") && error.contains("[tls.peers]") && error.contains("insecure_listen"),
        "{error}"
    );
    assert!(load_members(&authority, &public, peers, plain).is_ok());
    let unnamed = format!("{peers}server_name = \"two words\"\n");
    refuses(&authority, &unnamed, plain, &["[tls.peers] server_name", "DNS name"]);
    refuses(&authority, &peers.replace("ca_file = \"ca.crt\"", ""), plain, &["[tls.peers]", "ca_file"]);
}

#[test]
fn storage_with_tls_and_its_table_need_each_other() {
    let authority = Authority::new();
    authority.sign("a");
    let plain = "listen = \"127.0.0.1:6379\"";
    let secured = format!("{MEMBERS}storage = \"rediss://127.0.0.1:1\"\n");
    let table = "[tls.storage]\nca_file = \"ca.crt\"\n";
    let error = load_members(&authority, &secured, "", plain).unwrap_err();
    assert!(
        error.contains("shim-0") && error.contains("[tls.storage]") && error.contains("ca_file"),
        "{error}"
    );
    assert!(load_members(&authority, &secured, table, plain).is_ok());
    for url in ["rediss-cluster://127.0.0.1:1", "rediss+sentinel://127.0.0.1:1/main"] {
        let secured = format!("{MEMBERS}storage = \"{url}\"\n");
        assert!(load_members(&authority, &secured, "", plain).unwrap_err().contains("[tls.storage]"));
        assert!(load_members(&authority, &secured, table, plain).is_ok());
    }
    refuses(&authority, table, plain, &["[tls.storage]", "rediss://"]);
    let half = format!("{table}certificate_file = \"a.crt\"\n");
    let error = load_members(&authority, &secured, &half, plain).unwrap_err();
    assert!(error.contains("give both or neither"), "{error}");
}

#[test]
fn the_password_of_storage_may_be_in_a_file_of_its_own() {
    use config::{Login, Password};
    let authority = Authority::new();
    let plain = "listen = \"127.0.0.1:6379\"";
    let shim =
        |storage: &str| format!("{MEMBERS}storage = \"{storage}\"\nstorage_password_file = \"pass\"\n");
    let refused = |storage: &str| load_members(&authority, &shim(storage), "", plain).unwrap_err();
    let url = "redis://cache@127.0.0.1:1";
    assert!(refused(url).contains("[[shim]] \"shim-0\": storage_password_file = "), "{}", refused(url));
    std::fs::write(authority.path("pass"), "hunter2 \n").unwrap();
    let (config, _) = load_members(&authority, &shim(url), "", plain).unwrap();
    let expected = Login { user: Some("cache".to_owned()), password: Some(Password("hunter2 ".to_owned())) };
    assert_eq!(config.shims[0].storage.redis().map(|redis| &redis.login), Some(&expected));
    assert!(refused("redis://:hunter3@127.0.0.1:1").contains("give one of them"));
    assert!(refused("embedded:").contains("remove it"));
    let none = MEMBERS.to_owned() + "storage = \"redis://cache@127.0.0.1:1\"\n";
    let error = load_members(&authority, &none, "", plain).unwrap_err();
    assert!(error.contains("a user without a password"), "{error}");
}

#[test]
fn an_expired_certificate_is_no_reason_not_to_start() {
    let authority = Authority::new();
    authority.sign_until("a", 2020);
    let (_, certificates) = load(&authority, CLIENTS, ROUTER).unwrap();
    let [status] = certificates.status().try_into().unwrap();
    assert!(
        status.table == "clients" && status.expires_in_s.is_some_and(|seconds| seconds < 0),
        "{status:?}"
    );
}
