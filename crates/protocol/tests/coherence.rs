//! The hazards of coherence as scripts: what every message did, reviewed as text. `UPDATE_SCRIPTS=1` rewrites them.

mod world;

use std::fmt::Write;
use std::path::PathBuf;

use world::World;

/// Plays the `> ` lines of a script and compares everything that happens with the lines below them.
fn play(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/coherence").join(name);
    let script = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut world = World::new();
    let mut played = String::new();
    for line in script.lines() {
        if line.starts_with('#') || line.is_empty() {
            let _ = writeln!(played, "{line}");
        } else if let Some(command) = line.strip_prefix("> ") {
            let _ = write!(played, "{line}\n{}", world.command(command));
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(&path, played).expect("the script can be written");
        return;
    }
    assert_eq!(script, played, "{name}: play it with UPDATE_SCRIPTS=1 and read the difference");
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test] fn $name() { play(concat!(stringify!($name), ".txt")); })*

        #[test]
        fn every_script_is_played() {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/coherence");
            let names = [$(concat!(stringify!($name), ".txt")),*];
            for entry in std::fs::read_dir(folder).expect("the folder is there") {
                let name = entry.expect("an entry").file_name().into_string().expect("a name");
                assert!(names.contains(&name.as_str()), "{name} is not in the list of scripts");
            }
        }
    };
}

scripts! {
    blpop_and_the_lpush_that_wakes_it
    blpop_cancelled
    bounded_ages
    bounded_change_during_a_fill
    bounded_change_of_a_cached_key
    bounded_feed_hangs
    bounded_feed_lost
    bounded_flush
    bounded_node_does_not_acknowledge
    bounded_own_write_and_its_echo
    commit_of_an_older_version
    early_value_expires
    elastic_copies_are_bounded_by_writes
    elastic_copies_leave_the_shim_time
    elastic_evict_overtaken
    elastic_heat_of_an_old_session
    elastic_key_gets_a_further_place
    elastic_lowered_while_it_fetches
    elastic_place_that_moves
    elastic_policy_never
    elastic_write
    evict_after_a_refused_fetch
    evict_during_a_write
    evict_overtaken_by_insertion
    expiry_races_a_fill
    fill_expires_on_its_way
    fill_read_before_a_write_began
    flushall_is_a_barrier
    flushall_lost_and_applied_late
    handed_over
    handed_over_before_a_node_has_heard
    handed_over_past_a_node_that_is_stopped
    handed_over_while_a_command_blocks
    handed_over_while_it_is_asked
    hello_from_before_a_restart
    hello_late
    hello_repeated_after_the_session_opened
    hit_write_commit
    increment_is_never_repeated
    inv_and_commit_of_a_former_life
    inv_lost
    inv_overtakes_fill
    inv_unacknowledged_by_a_renewing_node
    idle_lease_is_not_lost
    key_leaves_storage_during_a_write
    key_leaves_storage_on_its_own
    large_value_of_a_hot_key
    left_before_it_could_hand_over
    messages_repeat
    nil_is_cached
    node_owns_nothing
    node_paused_past_its_lease
    node_reconnects
    observing_only
    offer_of_an_emptied_object
    policy_always
    policy_limits
    policy_never
    purge_after_a_restart
    purge_meets_a_write
    purge_of_a_key
    purge_of_many
    purge_when_storage_comes_back_empty
    purge_waits_for_a_lease
    read_joined_to_an_earlier_one
    reads_meet_at_the_shim
    reads_passed_on_in_a_pipeline
    reads_behind_two_fetches
    reads_joined_by_another_protocol
    reads_pipelined_at_a_node
    reads_pipelined_behind_one_passed_on
    refused_fill_says_nothing_of_the_key
    remap_between_grant_and_write
    set_then_get_pipelined
    revoke_repeated
    several_keys_in_one_step
    transaction_in_one_step
    transaction_lost_and_applied_late
    transaction_of_reads
    transaction_with_flushall
    watch_and_a_change
    watch_lost_with_its_connection
    shim_crash_between_the_phases
    shim_cut_off_from_storage
    slot_moves
    stale_and_an_unheard_invalidation
    stale_but_not_of_another_server
    stale_no_longer_than_the_key
    stale_until_storage_is_another
    stale_until_storage_is_back
    stale_where_only_the_feed_is_lost
    stale_while_storage_hangs
    stale_while_storage_is_gone
    storage_comes_back_empty
    storage_comes_back_empty_behind_a_write
    storage_emptied_between_two_processes
    strict_change_behind_a_write
    strict_change_during_a_fill
    strict_change_between_a_write_and_its_reading_back
    strict_change_of_a_cached_key
    strict_change_while_storage_is_asked
    strict_changes_that_are_only_counted
    strict_echo_expected_in_vain
    strict_echo_that_never_comes
    strict_expiry_is_not_foreign
    strict_flush_by_others
    strict_connections_that_write
    strict_foreign_writes_refused
    strict_storage_that_evicts
    strict_own_writes_are_not_foreign
    strict_read_that_is_not_tracked
    strict_read_feed_lost
    views_of_one_key
    waiting_behind_a_write_that_invalidates
    waiting_for_earlier_leases
    waiting_for_the_rate
    write_lost_and_applied_late
    write_queued_after_commit
    write_queued_behind_a_write
    write_that_waits_holds_no_key_off
}
