// SPDX-License-Identifier: GPL-2.0

//! The file system that the cases are written against: every operation once, used as it should be.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use kernel::{
    c_str,
    fs::{
        acl::{self, Acl, Kind as AclKind},
        aops,
        dentry::{Created, Negative, Opened, Positive, Spliced, Tmpfile, Unhashed},
        dir::{self, Emitter, FileType, NewName, Rename},
        export,
        file::{self, BackgroundSubmit, ExclCheck, ExclSubmit, FillSubmit, Landed, Landing},
        file::{ReadDone, ReadReq, SharedCheck, SharedSubmit, WriteDone, WriteReq},
        fileattr,
        inode::{Attributes, Flags, FreshINode, Iget, Ready, Special},
        iomap::{self, Kind, Mapping},
        lock::{Excl, Held, Shared},
        sb::{Mounted, NewSb},
        symlink::{self, Target},
        xattr::{self, Buffer, Condition, Names, Namespace},
        FileSystem, INode, IRef, Ino, Offset, SuperBlock,
    },
    init::PinInit,
    new_mutex,
    prelude::*,
    sync::Mutex,
    types::ARef,
};

pub struct Demo;

pub struct Data {
    pub root: Ino,
}

#[pin_data]
pub struct Info {
    #[pin]
    pub block: Mutex<u64>,
}

kernel::module_fs! {
    type: Demo,
    name: "demo",
    license: "GPL",
}

#[vtable]
impl FileSystem for Demo {
    const NAME: &'static CStr = c_str!("demo");

    type Data = Data;
    type INodeData = Info;
    type Params = ();
    type Xattr = Demo;
    type Acl = Demo;
    type FileAttr = Demo;
    type Export = Demo;

    fn init_inode_data() -> impl PinInit<Info, Error> {
        try_pin_init!(Info { block <- new_mutex!(0, "Info::block") })
    }

    fn fill_super<'a>(sb: NewSb<'a, Self>, _params: &()) -> Result<Mounted<'a, Self>> {
        let live = sb.publish(KBox::new(Data { root: 2 }, GFP_KERNEL)?.into());
        let root = iget(live.sb(), live.sb().data().root)?;
        live.set_root(root)
    }
}

pub fn iget(sb: &SuperBlock<Demo>, ino: Ino) -> Result<IRef<'_, Demo>> {
    match sb.iget(ino)? {
        Iget::Cached(inode) => Ok(inode),
        Iget::New(mut new) => {
            new.set_attributes(&Attributes {
                perm: 0o755,
                nlink: 1,
                ..Attributes::default()
            })?;
            match ino {
                2 => Ok(new.finish_dir::<Demo>()),
                3 => Ok(new.finish_symlink::<Demo>()),
                _ => Ok(new.finish_file::<Demo>()),
            }
        }
    }
}

#[vtable]
impl dir::Operations for Demo {
    type FileSystem = Demo;

    fn lookup<'a>(dir: Held<'_, Demo, Shared>, dentry: Unhashed<'a, Demo>) -> Result<Spliced<'a>> {
        if dentry.name() != b"file" {
            return dentry.splice_alias(None);
        }
        dentry.splice_alias(Some(iget(dir.sb(), 4)?))
    }

    fn read_dir(_dir: Held<'_, Demo, Shared>, emitter: &mut Emitter<'_>) -> Result {
        if emitter.pos() == 0 {
            let _taken = emitter.emit(b"file", 4, FileType::Regular, 1)?;
        }
        Ok(())
    }

    fn create<'a>(
        dir: Held<'_, Demo, Excl>,
        dentry: Negative<'a, Demo>,
        mode: u16,
    ) -> Result<Created<'a>> {
        Ok(dentry.instantiate(fresh_file(&dir, mode)?))
    }

    fn mkdir<'a>(
        dir: Held<'_, Demo, Excl>,
        dentry: Negative<'a, Demo>,
        mode: u16,
    ) -> Result<Created<'a>> {
        let mut new = dir.sb().fresh_inode(5)?;
        new.init_owner(&dir, 0o040000 | mode, false);
        Ok(dentry.instantiate(new.into_dir::<Demo>()))
    }

    fn mknod<'a>(
        dir: Held<'_, Demo, Excl>,
        dentry: Negative<'a, Demo>,
        _mode: u16,
        special: Special,
    ) -> Result<Created<'a>> {
        Ok(dentry.instantiate(dir.sb().fresh_inode(7)?.into_special(special)))
    }

    fn symlink<'a>(
        dir: Held<'_, Demo, Excl>,
        dentry: Negative<'a, Demo>,
        target: &[u8],
    ) -> Result<Created<'a>> {
        let new = dir.sb().fresh_inode(8)?.into_fast_symlink(target)?;
        Ok(dentry.instantiate(new))
    }

    fn link<'a>(
        mut inode: Held<'_, Demo, Excl>,
        _dir: Held<'_, Demo, Excl>,
        dentry: Negative<'a, Demo>,
    ) -> Result<Created<'a>> {
        inode.inc_nlink();
        dentry.link(inode.inode().grab()?)
    }

    fn unlink(mut dir: Held<'_, Demo, Excl>, mut victim: Positive<'_, Demo>) -> Result {
        if victim.name() == b"file" {
            return Err(EPERM);
        }
        dir.touch_mtime();
        victim.held().dec_nlink();
        Ok(())
    }

    fn rename(rename: Rename<'_, Demo>) -> Result {
        match rename {
            Rename::Within { mut dir, old, new } => {
                if let NewName::Replaced(mut victim) = new {
                    victim.held().dec_nlink();
                }
                dir.touch_mtime();
                old.touch_ctime();
            }
            Rename::Across {
                mut old_dir,
                mut new_dir,
                mut old,
                new: _,
            } => {
                old_dir.touch_mtime();
                new_dir.touch_mtime();
                old.held().touch_ctime();
            }
        }
        Ok(())
    }

    fn tmpfile<'a>(dir: &INode<Demo>, file: Tmpfile<'a, Demo>, mode: u16) -> Result<Opened<'a>> {
        file.open(fresh_file(dir, mode)?)
    }
}

pub fn fresh_file(dir: &INode<Demo>, mode: u16) -> Result<Ready<'_, Demo>> {
    let mut new = dir.sb().fresh_inode(6)?;
    new.init_owner(dir, 0o100000 | mode, false);
    Ok(new.into_file::<Demo>())
}

#[vtable]
impl xattr::Operations for Demo {
    type FileSystem = Demo;

    fn get(_: &INode<Demo>, _: Namespace, _: &[u8], to: &mut Buffer<'_>) -> Result {
        to.put(8, |to| {
            to.fill(1);
            Ok(())
        })
    }

    fn set(
        mut file: Held<'_, Demo, Excl>,
        _: Namespace,
        _: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
    ) -> Result {
        condition.check(true)?;
        *file.data().block.lock() = value.map_or(0, |value| value.len() as u64);
        file.touch_ctime();
        file.mark_dirty();
        Ok(())
    }

    fn list(_: &INode<Demo>, to: &mut Names<'_>) -> Result {
        to.put_acl(AclKind::Access)?;
        to.put(Namespace::User, 1, |to| {
            to.copy_from_slice(b"a");
            Ok(())
        })
    }
}

#[vtable]
impl acl::Operations for Demo {
    type FileSystem = Demo;

    fn get(file: &INode<Demo>, _: AclKind) -> Result<Option<ARef<Acl>>> {
        let entries = [acl::Entry {
            tag: acl::Tag::User(file.uid()),
            perm: 7,
        }];
        Acl::new(file.sb(), &entries).map(Some)
    }

    fn set(file: Held<'_, Demo, Excl>, _: AclKind, acl: Option<&Acl>) -> Result {
        *file.data().block.lock() = acl.map_or(0, |acl| acl.entries(file.sb()).count() as u64);
        Ok(())
    }
}

/// What a new file gets.
pub fn init(fresh: &mut FreshINode<'_, Demo>, dir: &INode<Demo>) -> Result {
    fresh.inherit_acl(dir)?;
    fresh.init_security(dir, None)
}

#[vtable]
impl fileattr::Operations for Demo {
    type FileSystem = Demo;

    fn get(file: &INode<Demo>) -> Result<u32> {
        Ok(u32::from(file.flags().contains(Flags::APPEND)))
    }

    fn set(mut file: Held<'_, Demo, Excl>, flags: u32) -> Result {
        file.set_flags(match flags {
            0 => Flags::default(),
            _ => Flags::APPEND,
        });
        Ok(())
    }
}

#[vtable]
impl export::Operations for Demo {
    type FileSystem = Demo;

    fn inode(sb: &SuperBlock<Demo>, ino: Ino) -> Result<IRef<'_, Demo>> {
        iget(sb, ino)
    }

    fn parent<'a>(dir: Held<'a, Demo, Shared>) -> Result<IRef<'a, Demo>> {
        iget(dir.inode().sb(), 2)
    }
}

#[vtable]
impl symlink::Operations for Demo {
    type FileSystem = Demo;

    fn get_link(_link: &INode<Demo>) -> Result<Target> {
        Target::new(b"file")
    }
}

#[vtable]
impl aops::Operations for Demo {
    type FileSystem = Demo;
    type Read = Look;
    type Write = Grow;
    type Fault = Touch;
    type Writeback = Store;
}

fn mapping(file: &INode<Demo>, pos: Offset) -> Mapping {
    let kind = match *file.data().block.lock() {
        0 => Kind::Hole,
        block => Kind::Mapped {
            addr: block << 12,
            new: false,
        },
    };
    Mapping {
        offset: pos & !4095,
        len: 4096,
        kind,
    }
}

/// Reads.
pub struct Look;

impl iomap::Lookup for Look {
    type FileSystem = Demo;

    fn map(file: &INode<Demo>, pos: Offset, _len: u64) -> Result<Mapping> {
        Ok(mapping(file, pos))
    }
}

/// Overwrites in the background.
pub struct Later;

impl iomap::Fill for Later {
    type FileSystem = Demo;

    fn map(&mut self, file: &INode<Demo>, pos: Offset, len: u64) -> Result<Mapping> {
        <Over as iomap::Overwrite>::map(file, pos, len)
    }
}

impl Landing for Later {
    fn landed(self, _file: &INode<Demo>, write: Landed<Demo>) {
        match write.range() {
            Ok((_start, end)) => {
                write.invalidate();
                write.grow_size(end);
                write.answer();
            }
            Err(e) => write.fail(e),
        }
    }
}

/// Overwrites.
pub struct Over;

impl iomap::Overwrite for Over {
    type FileSystem = Demo;

    fn map(file: &INode<Demo>, pos: Offset, _len: u64) -> Result<Mapping> {
        Ok(mapping(file, pos))
    }
}

/// Allocates.
pub struct Grow;

impl iomap::Alloc for Grow {
    type FileSystem = Demo;

    fn map(file: Held<'_, Demo, Excl>, pos: Offset, _len: u64) -> Result<Mapping> {
        *file.data().block.lock() = 7;
        Ok(mapping(&file, pos))
    }
}

/// Makes room for what a mapping stores.
pub struct Touch;

impl iomap::Fault for Touch {
    type FileSystem = Demo;

    fn map(file: &INode<Demo>, pos: Offset, _len: u64) -> Result<Mapping> {
        Ok(mapping(file, pos))
    }
}

/// Writes back.
pub struct Store;

impl iomap::Writeback for Store {
    type FileSystem = Demo;

    fn map(file: &INode<Demo>, pos: Offset, _len: u64) -> Result<Mapping> {
        Ok(mapping(file, pos))
    }
}

#[vtable]
impl file::Operations for Demo {
    type FileSystem = Demo;
    type Mapping = Demo;

    const FLAGS: file::Flags = file::Flags::DIO_PARALLEL_WRITE;

    fn read_iter<'k>(req: ReadReq<'k, Demo>) -> Result<ReadDone<'k>> {
        if req.is_direct() {
            return req.direct::<Look>();
        }
        req.buffered()
    }

    fn write_iter<'k>(mut req: WriteReq<'k, Demo>) -> Result<WriteDone<'k>> {
        let direct = req.is_direct();
        if direct {
            req = match req.lock_shared()?.check()? {
                SharedCheck::Done(done) => return Ok(done),
                SharedCheck::NeedsExcl(req) => req,
                SharedCheck::Extend(fill) => match fill.submit_background(Later) {
                    BackgroundSubmit::Queued(done) => return Ok(done),
                    BackgroundSubmit::Here(submitted, _later) => match submitted? {
                        FillSubmit::Filled(filled) => return filled.done(),
                        FillSubmit::NeedsExcl(req) => req,
                        FillSubmit::Done(done) => return Ok(done),
                    },
                },
                SharedCheck::Overwrite(write) => match write.submit::<Over>()? {
                    SharedSubmit::Done(done) => return Ok(done),
                    SharedSubmit::Hole(fill) => fill.needs_excl(),
                    SharedSubmit::NeedsExcl(req) => req,
                },
            };
        }
        let write = match req.lock()?.check()? {
            ExclCheck::Done(done) => return Ok(done),
            ExclCheck::Write(write) => write,
        };
        if !direct {
            return write.submit_buffered::<Demo>();
        }
        match write.submit_direct::<Over>()? {
            ExclSubmit::Done(done) => Ok(done),
            ExclSubmit::Fallback(write) => write.submit_buffered::<Demo>(),
        }
    }
}
