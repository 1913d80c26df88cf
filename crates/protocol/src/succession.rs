//! Which of the processes that may be a shim is the shim, as one who is linked to them sees it. Not who decides that: storage
//! does, by its fence, and a wrong guess costs errors for a moment and nothing else.
//!
//! Each of them says for how long it has been the shim. The youngest tenure counts, whoever tells of it and in which order: a
//! process that was stopped and wakes has an older one than who took its place.

use smallvec::SmallVec;
use wire::message::Tenure;

use crate::time::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Contender {
    linked: bool,
    /// Since when it is the shim, if it says so.
    since: Option<Time>,
}

/// The processes that may be one shim, by their places.
#[derive(Clone, Debug)]
pub struct Succession {
    contenders: SmallVec<[Contender; 2]>,
    followed: Option<usize>,
}

impl Succession {
    /// Nobody is linked yet. Where there is one place only, who is there is the shim, whatever it says.
    pub fn new(places: usize) -> Succession {
        Succession { contenders: SmallVec::from_elem(Contender::default(), places), followed: None }
    }

    pub fn linked(&mut self, place: usize) {
        self.contenders[place] = Contender { linked: true, since: None };
        self.choose();
    }

    pub fn unlinked(&mut self, place: usize) {
        self.contenders[place] = Contender::default();
        self.choose();
    }

    pub fn told(&mut self, now: Time, place: usize, tenure: &Tenure) {
        self.contenders[place].since = tenure.age.map(|age| Time(now.0.saturating_sub(age)));
        self.choose();
    }

    /// The place of the one that is the shim, as far as is known.
    pub fn followed(&self) -> Option<usize> {
        self.followed
    }

    /// One that is the shim no longer is left only for another: it knows best why nobody is.
    fn choose(&mut self) {
        if let [only] = &self.contenders[..] {
            self.followed = only.linked.then_some(0);
            return;
        }
        let governs = |place: &usize| self.contenders[*place].since.map(|since| (since, *place));
        let youngest =
            (0..self.contenders.len()).filter_map(|place| governs(&place)).max_by_key(|(since, _)| *since);
        let stays = self.followed.filter(|place| self.contenders[*place].linked);
        self.followed = match (youngest, stays.and_then(|place| governs(&place))) {
            // Two that are equally young: nobody changes sides for that.
            (Some((since, _)), Some((own, place))) if own == since => Some(place),
            (Some((_, place)), _) => Some(place),
            (None, _) => stays,
        };
    }
}

#[cfg(test)]
mod tests {
    use wire::message::Tenure;

    use super::Succession;
    use crate::time::Time;

    fn at(ms: u64) -> Time {
        Time(1_000_000 + ms * 1000)
    }

    fn age(ms: u64) -> Tenure {
        Tenure { age: Some(ms * 1000), routers: None }
    }

    const NONE: Tenure = Tenure { age: None, routers: None };

    #[test]
    fn the_only_one_is_the_shim_whatever_it_says() {
        let mut only = Succession::new(1);
        only.linked(0);
        assert_eq!(only.followed(), Some(0));
        only.told(at(0), 0, &NONE);
        assert_eq!(only.followed(), Some(0));
        only.unlinked(0);
        assert_eq!(only.followed(), None);
    }

    #[test]
    fn nobody_is_followed_before_somebody_says_that_he_is_the_shim() {
        let mut two = Succession::new(2);
        two.linked(0);
        two.linked(1);
        two.told(at(0), 0, &NONE);
        assert_eq!(two.followed(), None);
        two.told(at(0), 1, &age(5));
        assert_eq!(two.followed(), Some(1));
    }

    #[test]
    fn the_youngest_tenure_counts_in_whatever_order_they_are_told() {
        for order in [[0, 1], [1, 0]] {
            let mut two = Succession::new(2);
            [0, 1].into_iter().for_each(|place| two.linked(place));
            let ages = [age(60_000), age(200)];
            order.into_iter().for_each(|place| two.told(at(100_000), place, &ages[place]));
            assert_eq!(two.followed(), Some(1));
            // The older one is linked anew, and says again that it is the shim.
            two.unlinked(0);
            two.linked(0);
            two.told(at(101_000), 0, &age(61_000));
            assert_eq!(two.followed(), Some(1));
            two.told(at(102_000), 0, &age(0));
            assert_eq!(two.followed(), Some(0), "its turn has come again");
        }
    }

    #[test]
    fn who_is_the_shim_no_longer_is_left_for_another_and_who_is_gone_at_once() {
        let mut two = Succession::new(2);
        [0, 1].into_iter().for_each(|place| two.linked(place));
        two.told(at(0), 0, &age(0));
        two.told(at(10), 0, &NONE);
        assert_eq!(two.followed(), Some(0), "it says why nobody serves");
        two.told(at(20), 1, &age(0));
        assert_eq!(two.followed(), Some(1));
        two.unlinked(1);
        assert_eq!(two.followed(), None, "the other one has said that it is not");
    }

    #[test]
    fn two_of_the_same_age_make_nobody_change_sides() {
        let mut three = Succession::new(3);
        (0..3).for_each(|place| three.linked(place));
        three.told(at(9), 1, &age(9));
        (0..3).for_each(|place| three.told(at(9), place, &age(9)));
        assert_eq!(three.followed(), Some(1));
    }
}
