//! Splitting and merging sections (section 4.3.4, figure 4.4), so that there are few and none is large. Moves no bytes.

use super::queue::RipqQueue;
use super::section::Section;

impl RipqQueue {
    /// Splits and merges until both rules hold. Device blocks that lose their insertion point to a merge while they are
    /// still buffered are `closed`: what is in them is to be inserted again.
    pub(super) fn balance(&mut self) {
        while self.split_one() {}
        while let Some(lower) = self.small_pair() {
            self.merge(lower);
        }
    }

    /// A section that has reached twice alpha and can be cut becomes two.
    fn split_one(&mut self) -> bool {
        let limit = 2.0 * self.alpha * self.bytes as f64;
        let large = |section: &Section| section.bytes > 0 && section.bytes as f64 >= limit;
        let numbers = (0..self.sections.len()).filter(|number| large(&self.sections[*number]));
        let Some((number, cut)) = numbers.filter_map(|number| Some((number, self.cut(number)?))).next()
        else {
            return false;
        };
        let mut lower = Section::default();
        lower.sealed = self.sections[number].sealed.drain(..cut).collect();
        lower.bytes = lower.sealed.iter().map(|id| self.blocks[*id].bytes).sum();
        self.sections[number].bytes -= lower.bytes;
        self.sections.insert(number, lower);
        self.renumber(number);
        self.splits += 1;
        true
    }

    /// How many sealed blocks make the lower half, if both halves would have bytes.
    fn cut(&self, number: usize) -> Option<usize> {
        let section = &self.sections[number];
        let mut below = 0;
        let sums = section.sealed.iter().enumerate().map(|(index, id)| {
            below += self.blocks[*id].bytes;
            (index + 1, below)
        });
        let real = sums.filter(|(_, below)| 0 < *below && *below < section.bytes);
        real.min_by_key(|(_, below)| (2 * below).abs_diff(section.bytes)).map(|(cut, _)| cut)
    }

    /// Two neighbours that together have less than alpha, or one of which has nothing; the lower one's number.
    fn small_pair(&self) -> Option<usize> {
        let limit = self.alpha * self.bytes as f64;
        let small = |pair: &[Section]| {
            let (lower, upper) = (pair[0].bytes, pair[1].bytes);
            lower == 0 || upper == 0 || ((lower + upper) as f64) < limit
        };
        self.sections.windows(2).position(small)
    }

    /// Sections with a buffer, from the tail.
    pub(super) fn open_sections(&self) -> impl Iterator<Item = usize> {
        (0..self.sections.len()).filter(|number| self.sections[*number].active_device.is_some())
    }

    /// Merges the sections from one to another.
    pub(super) fn merge_all(&mut self, lower: usize, upper: usize) {
        (lower..upper).for_each(|_| self.merge(lower));
    }

    /// Joins a section to the one above it, whose insertion point stays.
    fn merge(&mut self, lower: usize) {
        self.closed.extend(self.sections[lower].active_device);
        self.seal(lower);
        let joined = self.sections.remove(lower);
        let upper = &mut self.sections[lower];
        upper.bytes += joined.bytes;
        for id in joined.sealed.into_iter().rev() {
            upper.sealed.push_front(id);
        }
        self.renumber(lower);
        self.merges += 1;
    }
}
