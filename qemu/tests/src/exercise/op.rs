// SPDX-License-Identifier: GPL-2.0

//! Operations on a file, by name, and random ones.

use std::fmt;

macro_rules! kinds {
    ($($kind:ident $name:literal $weight:literal $doc:literal)*) => {
        /// What an operation does.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: [Kind; [$(Kind::$kind),*].len()] = [$(Kind::$kind),*];

            /// Its name on the command line and in logs.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// How often it is chosen, compared with others.
            fn weight(self) -> usize {
                match self { $(Kind::$kind => $weight,)* }
            }
        }
    };
}

kinds! {
    Read "read" 4 "pread(2)"
    UncachedRead "uncached-read" 6 "preadv2(2) with RWF_UNCACHED"
    MappedRead "mapped-read" 3 "Loads from a shared mapping"
    DirectRead "direct-read" 2 "pread(2) with O_DIRECT"
    RingRead "ring-read" 1 "A read by io_uring"
    RingUncachedRead "ring-uncached-read" 2 "A read by io_uring with RWF_UNCACHED"
    Write "write" 4 "pwrite(2)"
    UncachedWrite "uncached-write" 8 "pwritev2(2) with RWF_UNCACHED"
    MappedWrite "mapped-write" 3 "Stores to a shared mapping"
    DirectWrite "direct-write" 2 "pwrite(2) with O_DIRECT"
    RingWrite "ring-write" 1 "A write by io_uring"
    RingUncachedWrite "ring-uncached-write" 3 "A write by io_uring with RWF_UNCACHED"
    Truncate "truncate" 2 "ftruncate(2)"
    Punch "punch" 2 "fallocate(2) that makes a hole"
    Zero "zero" 2 "fallocate(2) that makes zeros"
    Allocate "allocate" 1 "fallocate(2) of blocks"
    Collapse "collapse" 1 "fallocate(2) that takes a range out"
    Insert "insert" 1 "fallocate(2) that puts a hole in"
    Sync "sync" 1 "fsync(2)"
    DataSync "data-sync" 1 "fdatasync(2)"
    Forget "forget" 1 "posix_fadvise(2): out of the cache"
}

impl Kind {
    /// The kind of this name.
    pub fn find(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// All names.
    pub fn list() -> String {
        Kind::ALL.map(Kind::name).join(", ")
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// Its number; also what it writes.
    pub number: usize,
    /// What it does.
    pub kind: Kind,
    /// Where.
    pub pos: usize,
    /// To how many bytes.
    pub length: usize,
}

impl Step {
    /// A random operation of one of these kinds inside a file of `size` bytes.
    pub fn random(random: &mut fastrand::Rng, kinds: &[Kind], number: usize, size: usize) -> Step {
        let total: usize = kinds.iter().map(|kind| kind.weight()).sum();
        let mut ticket = random.usize(0..total);
        let mut kind = kinds[0];
        for one in kinds {
            kind = *one;
            if ticket < one.weight() {
                break;
            }
            ticket -= one.weight();
        }
        // Short ones as often as long ones, and page borders now and then.
        let most = 1 << random.u32(0..=16);
        let mut pos = random.usize(0..size);
        if random.u8(0..4) == 0 {
            pos &= !4095;
        }
        let length = random.usize(1..=most).min(size - pos);
        Step {
            number,
            kind,
            pos,
            length,
        }
    }

    /// The bytes that it writes.
    pub fn bytes(&self) -> Vec<u8> {
        // Never zero, which is what holes hold; other bytes in each 512.
        let byte = |at: usize| (self.number.wrapping_mul(31).wrapping_add(at >> 9)) as u8 | 1;
        (self.pos..self.pos + self.length).map(byte).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step {
            number,
            kind,
            pos,
            length,
        } = self;
        write!(f, "{number} {} {pos} {length}", kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for kind in Kind::ALL {
            assert_eq!(Kind::find(kind.name()), Some(kind));
        }
        assert_eq!(Kind::find("jump"), None);
    }

    #[test]
    fn a_seed_gives_the_same_operations_and_all_kinds() {
        let steps = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let step = |number| Step::random(&mut random, &Kind::ALL, number, 1 << 18);
            (0..2000).map(step).collect::<Vec<_>>()
        };
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
        for kind in Kind::ALL {
            assert!(steps(1).iter().any(|step| step.kind == kind), "{kind:?}");
        }
        assert!(
            steps(1)
                .iter()
                .all(|step| step.length > 0 && step.pos + step.length <= 1 << 18)
        );
    }
}
