// SPDX-License-Identifier: GPL-2.0

//! Access control lists, which are attributes in a form of their own.

#![forbid(unsafe_code)]

use crate::{inode::corrupted, xattr, Rext2};
use kernel::{
    fs::{
        acl::{Acl, Entry, Kind, Operations, Tag},
        dentry::Negative,
        inode::FreshINode,
        lock::{Excl, Held},
        xattr::Condition,
        INode,
    },
    prelude::*,
    types::ARef,
};

/// `a_version`
const VERSION: u32 = 1;

// `e_tag`
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

fn name(kind: Kind) -> xattr::Name<'static> {
    xattr::Name::new(xattr::acl_index(kind), b"")
}

/// Gives a new inode the lists that `dir` keeps for new files, or applies the umask; and what the
/// security modules want it to have. To be called once, when its owner and its type are known.
pub(crate) fn init(
    fresh: &mut FreshINode<'_, Rext2>,
    dir: &INode<Rext2>,
    name: Option<&Negative<'_, Rext2>>,
) -> Result {
    fresh.inherit_acl(dir)?;
    fresh.init_security(dir, name)
}

#[vtable]
impl Operations for Rext2 {
    type FileSystem = Rext2;

    fn get(inode: &INode<Rext2>, kind: Kind) -> Result<Option<ARef<Acl>>> {
        let value = xattr::get(inode, name(kind), |len, fill| {
            let mut value = KVec::from_elem(0, len, GFP_KERNEL)?;
            fill(&mut value)?;
            Ok(value)
        })?;
        let Some(value) = value else {
            return Ok(None);
        };
        let entries = decode(&value)?;
        if matches!(&entries, Some(entries) if entries.is_empty()) {
            return Ok(None);
        }
        let acl = match &entries {
            Some(entries) => Acl::new(inode.sb(), entries),
            None => Err(EINVAL),
        };
        match acl {
            Err(e) if e == EINVAL => Err(corrupted(
                inode,
                format_args!(
                    "{kind:?} access control list of {} bytes is none",
                    value.len()
                ),
            )),
            acl => acl.map(Some),
        }
    }

    fn set(mut inode: Held<'_, Rext2, Excl>, kind: Kind, acl: Option<&Acl>) -> Result {
        let value = match acl {
            Some(acl) => Some(encode(acl, &inode)?),
            None => None,
        };
        let value = value.as_deref();
        xattr::set(&mut inode, name(kind), value, Condition::default())
    }
}

/// Takes a list apart; `None` if it is none.
fn decode(value: &[u8]) -> Result<Option<KVec<Entry>>> {
    let mut entries = KVec::new();
    let Some((version, mut rest)) = value.split_first_chunk() else {
        return Ok(None);
    };
    if u32::from_le_bytes(*version) != VERSION {
        return Ok(None);
    }
    while !rest.is_empty() {
        let Some((entry, tail)) = decode_entry(rest) else {
            return Ok(None);
        };
        entries.push(entry, GFP_KERNEL)?;
        rest = tail;
    }
    Ok(Some(entries))
}

/// Takes the first entry: 4 bytes, and 4 more with the number of a user or a group.
fn decode_entry(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (tag, bytes) = bytes.split_first_chunk()?;
    let (perm, rest) = bytes.split_first_chunk()?;
    let id = || {
        let (id, rest) = rest.split_first_chunk()?;
        Some((u32::from_le_bytes(*id), rest))
    };
    let (tag, rest) = match u16::from_le_bytes(*tag) {
        USER_OBJ => (Tag::UserObj, rest),
        USER => id().map(|(id, rest)| (Tag::User(id), rest))?,
        GROUP_OBJ => (Tag::GroupObj, rest),
        GROUP => id().map(|(id, rest)| (Tag::Group(id), rest))?,
        MASK => (Tag::Mask, rest),
        OTHER => (Tag::Other, rest),
        _ => return None,
    };
    let perm = u16::from_le_bytes(*perm);
    Some((Entry { tag, perm }, rest))
}

/// Puts a list together.
fn encode(acl: &Acl, inode: &INode<Rext2>) -> Result<KVec<u8>> {
    let mut value = KVec::with_capacity(4 + 8 * acl.len(), GFP_KERNEL)?;
    value.extend_from_slice(&VERSION.to_le_bytes(), GFP_KERNEL)?;
    for entry in acl.entries(inode.sb()) {
        let (tag, id) = match entry.tag {
            Tag::UserObj => (USER_OBJ, None),
            Tag::User(id) => (USER, Some(id)),
            Tag::GroupObj => (GROUP_OBJ, None),
            Tag::Group(id) => (GROUP, Some(id)),
            Tag::Mask => (MASK, None),
            Tag::Other => (OTHER, None),
        };
        value.extend_from_slice(&tag.to_le_bytes(), GFP_KERNEL)?;
        value.extend_from_slice(&entry.perm.to_le_bytes(), GFP_KERNEL)?;
        if let Some(id) = id {
            value.extend_from_slice(&id.to_le_bytes(), GFP_KERNEL)?;
        }
    }
    Ok(value)
}
