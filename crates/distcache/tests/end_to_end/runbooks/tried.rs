//! Which test follows which step of the runbooks, and which remedy that they link to. Not the steps.

const BUSY: &str = "runbooks::busy::each_rule_is_counted_by_its_name_and_cured";
const COLD: &str = "runbooks::cold::each_reason_is_seen_and_mended";
const FEED: &str = "runbooks::cold::storage_that_reports_nothing_in_mode_bounded_is_seen_and_mended";
const CERTIFICATES: &str = "runbooks::certificates::certificates_expire_and_are_replaced_while_clients_stay";
const MEMBERS: &str = "runbooks::members::one_of_each_kind_is_lost_and_started_again";
const REFUSED: &str =
    "runbooks::members::a_member_with_another_file_serves_nothing_until_it_has_that_of_the_others";
const STORAGE: &str = "runbooks::storage::a_server_is_lost_hangs_is_taken_over_and_comes_back_empty";
const WAY_OUT: &str = "runbooks::way_out::the_cache_is_switched_off_and_on_and_emptied_under_load";
const DISASTER: &str = "runbooks::disaster::everything_is_killed_at_once_and_starts_cold";

/// A test of this program by its path, or of another crate by its file.
pub(super) type Tests = &'static [&'static str];

/// The prose of each section, by no words, and each row and point by how it begins.
pub(super) const TRIED: &[(&str, &[(&str, Tests)])] = &[
    (
        "Look first",
        &[(
            "",
            &[
                "runbooks::way_out::the_cache_is_switched_off_and_on_and_emptied_under_load",
                "operations::observing::what_would_be_cached_is_counted_until_caching_is_switched_on",
            ],
        )],
    ),
    (
        "A member is lost",
        &[
            ("", &[MEMBERS]),
            (
                "a **node**",
                &[
                    MEMBERS,
                    "failures::killed_nodes_hold_writes_for_a_lease_at_most",
                    "failures::nodes_that_stop_in_order_give_their_leases_back",
                    "failures::the_partition_of_a_lost_node_is_taken_over_and_given_back",
                ],
            ),
            (
                "a **shim**",
                &[MEMBERS, "standbys::shims_that_are_killed_are_replaced_and_stand_by_when_they_are_back"],
            ),
            ("a **router**", &[MEMBERS]),
            (
                "a **controller**",
                &[MEMBERS, "replicas::all_controllers_or_all_of_etcd_gone_costs_nobody_anything"],
            ),
            (
                "**etcd**",
                &[
                    "replicas::all_controllers_or_all_of_etcd_gone_costs_nobody_anything",
                    "replicas::an_etcd_that_has_lost_everything_or_is_an_older_one_costs_nobody_anything",
                ],
            ),
            ("a **host**", &["hosts::any_host_of_three_is_lost_and_comes_back_without_a_wrong_value"]),
        ],
    ),
    (
        "A member is refused",
        &[("", &[REFUSED, "agreement::who_lists_fewer_shims_is_refused_and_the_others_go_on"])],
    ),
    (
        "A storage server is lost",
        &[
            ("", &[STORAGE]),
            (
                "Commands on its keys fail",
                &[STORAGE, "failures::storage_or_a_shim_that_stops_for_a_while_costs_time_only"],
            ),
            (
                "Bring the server back",
                &[STORAGE, "failures::a_redis_that_comes_back_empty_is_seen_as_one_history"],
            ),
            ("The log names a permission", &["trouble::wrong_passwords_and_missing_permissions_are_named"]),
            (
                "The log says `another process",
                &[
                    STORAGE,
                    "failures::a_paused_shim_that_was_replaced_serves_nothing_until_its_successor_is_gone",
                ],
            ),
            (
                "The log says `waiting until",
                &["memcached::storage::a_shim_waits_until_whoever_else_is_connected_has_left"],
            ),
            (
                "A server is promoted",
                &[
                    "sentinel::the_primary_that_sentinels_choose_is_followed",
                    "redis_cluster::a_replica_takes_over_gracefully_under_clients",
                ],
            ),
        ],
    ),
    (
        "Clients get `-BUSY`",
        &[
            ("", &["scripts::others_hear_that_a_script_runs_and_can_end_it"]),
            ("`waited-too-long`", &[BUSY]),
            ("shim `storage-limit`", &[BUSY]),
            ("shim `queue`", &[BUSY]),
            ("`rate`", &[BUSY]),
            ("router `busy`", &["crates/protocol/tests/router/scripts.rs::scripts"]),
            ("router `everybody-busy`", &[BUSY]),
            ("router `unavailable`", &[MEMBERS]),
            ("node `shim-unreachable`", &[BUSY]),
        ],
    ),
    (
        "Clients get other errors",
        &[
            ("", &[STORAGE]),
            ("an error that says the outcome", &[STORAGE]),
            ("`NOAUTH`", &["users::a_cached_key_obeys_the_rules"]),
            (
                "`NOPERM`",
                &["users::a_cached_key_obeys_the_rules", "crates/protocol/tests/router/scripts.rs::scripts"],
            ),
            ("`-LOADING ... users", &["runbooks::members::a_router_that_knows_nothing_yet_says_so"]),
            (
                "`-CLUSTERDOWN`",
                &[
                    "crates/protocol/src/shards/tests.rs::a_slot_that_nobody_serves_is_tried_again_until_it_is_enough",
                ],
            ),
            (
                "`... concerns all keys",
                &[
                    "crates/protocol/src/shards/tests.rs::a_primary_of_two_shims_is_asked_by_the_one_with_its_lowest_slot",
                ],
            ),
            ("`max number of clients`", &["trouble::clients_over_the_limit_are_told"]),
            (
                "the connection is closed",
                &[
                    "pipelines::the_largest_of_too_much_is_told_and_closed",
                    "users::strangers_may_not_send_much_nor_stay",
                    "crates/router/tests/router/front_door.rs::a_client_that_never_reads_is_told_so_and_closed",
                ],
            ),
        ],
    ),
    (
        "A hot key is not cached",
        &[
            ("", &["balance::one_key_that_is_too_hot_for_its_nodes_is_served_by_all", COLD]),
            ("Is it written more", &[COLD]),
            ("Is the reply larger", &[COLD]),
            ("Does a `[[policy]]`", &[COLD]),
            ("Is `observe_only`", &[COLD]),
            ("Is it read by scripts", &[COLD]),
            ("Is `distcache_shim_feed_up`", &[FEED]),
            ("Are `distcache_node_objects`", &[COLD]),
            ("Do nodes lack", &[MEMBERS]),
        ],
    ),
    (
        "Nodes are not equally busy",
        &[(
            "",
            &[
                "balance::nodes_share_a_skewed_load_evenly",
                "membership::a_drained_node_holds_nothing_and_holds_nobody_up",
            ],
        )],
    ),
    (
        "Writes are slow",
        &[
            ("", &["operations::slow_log::slow_commands_are_shown_with_their_clients"]),
            (
                "about a second, after",
                &[STORAGE, "leases::a_shim_with_shorter_leases_waits_for_the_longer_ones_before_it"],
            ),
            (
                "a minute, after a shim has started",
                &[
                    STORAGE,
                    "leases::where_nothing_is_on_record_nothing_is_read_or_written_that_a_copy_may_contradict",
                ],
            ),
            ("seconds, after server", &[DISASTER]),
            ("about a second, now", &[MEMBERS]),
            ("always a little", &["operations::copies::policies_say_what_is_cached"]),
            ("`distcache_shim_queue_depth`", &[BUSY]),
        ],
    ),
    (
        "Memory grows",
        &[
            ("", &[COLD]),
            ("a node", &[COLD]),
            (
                "a router",
                &[
                    "memory::a_router_in_a_small_control_group_outlives_clients_that_hoard",
                    "pipelines::the_largest_of_too_much_is_told_and_closed",
                ],
            ),
            ("a shim", &["large_replies::large_replies_pass_through_little_memory", BUSY]),
            (
                "storage",
                &[
                    "foreign_writers::a_server_that_evicts_is_found",
                    "bounded::expiry_eviction_and_flushes_reach_the_copies",
                ],
            ),
        ],
    ),
    (
        "Certificates",
        &[
            ("", &[CERTIFICATES]),
            (
                "`distcache_tls_certificate",
                &[
                    CERTIFICATES,
                    "tls::reload::new_certificates_come_into_use_under_load_without_a_failed_request",
                ],
            ),
            (
                "`distcache_tls_reloads_failed",
                &[CERTIFICATES, "tls::reload::broken_files_leave_the_old_certificate_in_use_and_are_named"],
            ),
            ("`distcache_tls_handshakes", &[CERTIFICATES, "tls::front::client_certificates_are_verified"]),
            ("an expired", &[CERTIFICATES]),
        ],
    ),
    (
        "Stale data",
        &[(
            "",
            &[
                WAY_OUT,
                "operations::copies::a_purge_drops_copies_and_leaves_the_data",
                "foreign_writers::copies_follow_them_and_they_are_counted",
            ],
        )],
    ),
    (
        "What logs say",
        &[
            ("", &[REFUSED]),
            ("`link not made`", &[REFUSED]),
            ("`is connected already", &["started_twice::no_value_is_stale_while_a_node_runs_twice"]),
            ("`refused`", &[REFUSED]),
            (
                "a controller: `the store's",
                &["replicas::a_member_may_move_and_is_no_other_one_than_the_map_says"],
            ),
            (
                "a new member:",
                &["runbooks::members::a_new_node_is_refused_until_the_controller_is_told_of_it"],
            ),
            (
                "`only taken from",
                &["crates/runtime/src/admin/guard.rs::changes_take_the_secret_and_this_machine"],
            ),
            ("`restart needed", &[WAY_OUT]),
        ],
    ),
    (
        "Nodes or storage servers are too few",
        &[
            ("", &["membership::nodes_and_layers_are_added_while_clients_work"]),
            ("nodes:", &["membership::nodes_and_layers_are_added_while_clients_work"]),
            ("storage servers:", &["resharding::a_server_gets_its_part_of_the_keys_while_clients_write"]),
        ],
    ),
    (
        "An upgrade does not go on",
        &[
            ("", &["upgrades::every_member_is_replaced_in_place_without_an_error_for_old_or_new_clients"]),
            ("`no other process", &["upgrades::a_process_goes_on_where_the_next_one_cannot"]),
            ("`would be lost`", &["upgrades::a_process_goes_on_where_the_next_one_cannot"]),
        ],
    ),
    (
        "Everything is lost at once",
        &[
            ("", &[DISASTER]),
            ("1. Start", &[DISASTER]),
            ("2. Start etcd", &["replicas::a_cluster_that_was_stopped_starts_again_without_what_etcd_knew"]),
            ("3. Start", &[DISASTER]),
            ("4. The first", &[DISASTER]),
            ("5. `distcache status", &[DISASTER]),
        ],
    ),
];

/// What no test follows, with the reason.
pub(super) const UNTRIED: &[(&str, &str, &str)] = &[
    (
        "A hot key is not cached",
        "Are they fields of hashes",
        "takes a server whose hash fields expire, which the packages of Debian do not have",
    ),
    (
        "A hot key is not cached",
        "Does its slot move",
        "that slots move without a stale read is tried; for how long nothing is cached after it is not",
    ),
    (
        "An upgrade does not go on",
        "the new release misbehaves",
        "takes two releases: `cargo xtask jepsen --upgrades` runs them beside each other, and only one is built here",
    ),
];

/// Remedies on other pages.
pub(super) const LINKED: &[(&str, Tests)] = &[
    (
        "backup.md#a-host-is-lost-for-good",
        &[
            "hosts::any_host_of_three_is_lost_and_comes_back_without_a_wrong_value",
            "backup::file_secret_and_folder_are_all_that_a_host_needs",
        ],
    ),
    (
        "backup.md#etcd",
        &["replicas::an_etcd_that_has_lost_everything_or_is_an_older_one_costs_nobody_anything"],
    ),
    (
        "day-two.md#adding-and-removing-storage-servers",
        &[
            "resharding::a_server_gets_its_part_of_the_keys_while_clients_write",
            "resharding::a_server_gives_its_keys_to_the_others_and_is_taken_away",
        ],
    ),
    ("day-two.md#adding-nodes-and-layers", &["membership::nodes_and_layers_are_added_while_clients_work"]),
    ("day-two.md#the-slow-log", &["operations::slow_log::slow_commands_are_shown_with_their_clients"]),
    (
        "day-two.md#upgrading",
        &[
            "upgrades::every_member_is_replaced_in_place_without_an_error_for_old_or_new_clients",
            "standbys::a_shim_without_a_standby_is_started_again_without_an_error_or_a_wait",
        ],
    ),
    (
        "hosts.md#when-a-host-is-lost",
        &[
            "hosts::any_host_of_three_is_lost_and_comes_back_without_a_wrong_value",
            "hosts::a_host_that_hangs_is_replaced_and_shows_no_wrong_value_when_it_wakes",
        ],
    ),
    ("security.md#new-certificates-need-no-restart", &[CERTIFICATES]),
    ("security.md#tls", &["tls::http::controllers_and_admin_endpoints_are_asked_over_tls"]),
    ("standbys.md", &["standbys::shims_that_are_killed_are_replaced_and_stand_by_when_they_are_back"]),
    ("storage.md#bounded-mode", &["bounded::copies_follow_whoever_writes"]),
    ("storage.md#redis", &["trouble::wrong_passwords_and_missing_permissions_are_named"]),
    (
        "storage.md#the-embedded-store-on-disk",
        &["stores::what_was_acknowledged_is_there_after_every_shim_was_killed"],
    ),
    ("placement.md", &["placements::keys_lie_where_nutcracker_puts_them"]),
];
