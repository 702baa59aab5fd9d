// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/backing-dev.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/cred.h>
#include <linux/delayed_call.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/mm.h>
#include <linux/mnt_idmapping.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/timekeeping.h>
#include <linux/writeback.h>

/*
 * Inode slab: the VFS inode is the first member of the object, so the
 * constructor that the VFS asks for can work on the object itself.
 */
static void fs_inode_init_once(void *object)
{
	inode_init_once(object);
}

struct kmem_cache *rust_helper_fs_inode_cache_create(const char *name,
						     unsigned int size,
						     unsigned int align)
{
	return kmem_cache_create(name, size, align,
				 SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT,
				 fs_inode_init_once);
}

void *rust_helper_fs_alloc_inode_sb(struct super_block *sb,
				    struct kmem_cache *cache)
{
	return alloc_inode_sb(sb, cache, GFP_KERNEL);
}

/*
 * i_count does not saturate. An inode of which that many references have been
 * leaked is not handed out any more, so that the count never wraps.
 */
struct inode *rust_helper_fs_iget_locked(struct super_block *sb,
					 unsigned long ino)
{
	struct inode *inode = iget_locked(sb, ino);

	if (inode && atomic_read(&inode->i_count) > INT_MAX / 2) {
		iput(inode);
		return NULL;
	}

	return inode;
}

/* I_NEW is read under i_lock, as every reader of i_state has to. */
bool rust_helper_fs_inode_is_new(struct inode *inode)
{
	bool new;

	spin_lock(&inode->i_lock);
	new = inode->i_state & I_NEW;
	spin_unlock(&inode->i_lock);

	return new;
}

/*
 * Inodes whose last reference was leaked survive evict_inodes(). Take them
 * off the hash and the writeback lists, and their pages and buffers from them,
 * so that nothing in the kernel reaches them once the superblock is gone, and
 * keep the module, whose code frees them, for ever. The extra reference keeps
 * each of them on s_inodes while the list lock is dropped; it is never
 * returned.
 */
void rust_helper_fs_isolate_busy_inodes(struct super_block *sb)
{
	struct inode *inode;
	bool busy = false;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		spin_lock(&inode->i_lock);
		if (inode->i_state & (I_FREEING | I_WILL_FREE)) {
			spin_unlock(&inode->i_lock);
			continue;
		}
		__iget(inode);
		spin_unlock(&inode->i_lock);
		spin_unlock(&sb->s_inode_list_lock);

		remove_inode_hash(inode);
		if (!list_empty(&inode->i_io_list))
			inode_io_list_del(inode);
		truncate_inode_pages(&inode->i_data, 0);
		invalidate_inode_buffers(inode);
		busy = true;

		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);

	if (busy)
		__module_get(sb->s_type->owner);
}

loff_t rust_helper_i_size_read(const struct inode *inode)
{
	return i_size_read(inode);
}

void rust_helper_i_size_write(struct inode *inode, loff_t size)
{
	i_size_write(inode, size);
}

void rust_helper_i_uid_write(struct inode *inode, uid_t uid)
{
	i_uid_write(inode, uid);
}

void rust_helper_i_gid_write(struct inode *inode, gid_t gid)
{
	i_gid_write(inode, gid);
}

struct timespec64 rust_helper_inode_set_atime(struct inode *inode,
					      time64_t sec, long nsec)
{
	return inode_set_atime(inode, sec, nsec);
}

struct timespec64 rust_helper_inode_set_mtime(struct inode *inode,
					      time64_t sec, long nsec)
{
	return inode_set_mtime(inode, sec, nsec);
}

struct timespec64 rust_helper_inode_set_ctime(struct inode *inode,
					      time64_t sec, long nsec)
{
	return inode_set_ctime(inode, sec, nsec);
}

bool rust_helper_IS_NOSEC(struct inode *inode)
{
	return IS_NOSEC(inode);
}

void rust_helper_inode_lock(struct inode *inode)
{
	inode_lock(inode);
}

bool rust_helper_inode_trylock(struct inode *inode)
{
	return inode_trylock(inode);
}

void rust_helper_inode_unlock(struct inode *inode)
{
	inode_unlock(inode);
}

void rust_helper_inode_lock_shared(struct inode *inode)
{
	inode_lock_shared(inode);
}

bool rust_helper_inode_trylock_shared(struct inode *inode)
{
	return inode_trylock_shared(inode);
}

void rust_helper_inode_unlock_shared(struct inode *inode)
{
	inode_unlock_shared(inode);
}

void rust_helper_fs_inode_downgrade(struct inode *inode)
{
	downgrade_write(&inode->i_rwsem);
}

void rust_helper_mapping_set_large_folios(struct address_space *mapping)
{
	mapping_set_large_folios(mapping);
}

bool rust_helper_sb_rdonly(const struct super_block *sb)
{
	return sb_rdonly(sb);
}

u64 rust_helper_sb_bdev_nr_blocks(struct super_block *sb)
{
	return sb_bdev_nr_blocks(sb);
}

void rust_helper_super_set_uuid(struct super_block *sb, const u8 *uuid,
				unsigned int len)
{
	super_set_uuid(sb, uuid, len);
}

__kernel_fsid_t rust_helper_uuid_to_fsid(__u8 *uuid)
{
	return uuid_to_fsid(uuid);
}

void rust_helper_fs_report_corruption(struct super_block *sb,
				      struct inode *inode)
{
	fsnotify_sb_error(sb, inode, -EUCLEAN);
}

bool rust_helper_dir_emit(struct dir_context *ctx, const char *name,
			  int namelen, u64 ino, unsigned int type)
{
	return dir_emit(ctx, name, namelen, ino, type);
}

void rust_helper_set_delayed_call(struct delayed_call *call,
				  void (*fn)(void *), void *arg)
{
	set_delayed_call(call, fn, arg);
}

size_t rust_helper_iov_iter_count(const struct iov_iter *iter)
{
	return iov_iter_count(iter);
}

void rust_helper_file_accessed(struct file *file)
{
	file_accessed(file);
}

void rust_helper_fs_file_set_can_odirect(struct file *file)
{
	file->f_mode |= FMODE_CAN_ODIRECT;
}

ssize_t rust_helper_generic_write_sync(struct kiocb *iocb, ssize_t count)
{
	return generic_write_sync(iocb, count);
}

dev_t rust_helper_fs_mkdev(unsigned int major, unsigned int minor)
{
	return MKDEV(major, minor);
}

/*
 * As fs_iget_locked(), for one more reference. An inode that is being set up
 * belongs to its maker alone. The last reference to one that is on its way out
 * has been put: a second last one would free it twice.
 */
int rust_helper_fs_grab(struct inode *inode)
{
	int err = 0;

	spin_lock(&inode->i_lock);
	if (unlikely(inode->i_state & (I_NEW | I_FREEING | I_WILL_FREE)))
		err = -EBUSY;
	else if (unlikely(atomic_read(&inode->i_count) > INT_MAX / 2))
		err = -ENOMEM;
	else
		__iget(inode);
	spin_unlock(&inode->i_lock);

	return err;
}

/*
 * Make the inode with a number that was not in use. It is hashed and new. The
 * number of links says that it is in use, until somebody sets it to zero.
 */
struct inode *rust_helper_fs_new_inode(struct super_block *sb,
				       unsigned long ino)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return ERR_PTR(-ENOMEM);

	inode->i_ino = ino;
	if (insert_inode_locked(inode) < 0) {
		iput(inode);
		return ERR_PTR(-EIO);
	}

	return inode;
}

void rust_helper_fs_init_owner(struct inode *inode, const struct inode *dir,
			       umode_t mode, bool grpid)
{
	if (grpid) {
		inode->i_mode = mode;
		inode->i_uid = current_fsuid();
		inode->i_gid = dir->i_gid;
	} else {
		inode_init_owner(&nop_mnt_idmap, inode, dir, mode);
	}
	simple_inode_init_ts(inode);
}

u32 rust_helper_get_random_u32(void)
{
	return get_random_u32();
}

time64_t rust_helper_ktime_get_real_seconds(void)
{
	return ktime_get_real_seconds();
}

uid_t rust_helper_i_uid_read(const struct inode *inode)
{
	return i_uid_read(inode);
}

gid_t rust_helper_i_gid_read(const struct inode *inode)
{
	return i_gid_read(inode);
}

struct timespec64 rust_helper_inode_get_atime(const struct inode *inode)
{
	return inode_get_atime(inode);
}

struct timespec64 rust_helper_inode_get_mtime(const struct inode *inode)
{
	return inode_get_mtime(inode);
}

struct timespec64 rust_helper_inode_get_ctime(const struct inode *inode)
{
	return inode_get_ctime(inode);
}

void rust_helper_fs_touch_mtime(struct inode *inode)
{
	inode_set_mtime_to_ts(inode, inode_set_ctime_current(inode));
}

void rust_helper_mark_inode_dirty(struct inode *inode)
{
	mark_inode_dirty(inode);
}

void rust_helper_fs_add_sectors(struct inode *inode, s64 count)
{
	spin_lock(&inode->i_lock);
	inode->i_blocks += count;
	spin_unlock(&inode->i_lock);
}

u64 rust_helper_fs_sectors(const struct inode *inode)
{
	return READ_ONCE(inode->i_blocks);
}

bool rust_helper_IS_SYNC(struct inode *inode)
{
	return IS_SYNC(inode);
}

bool rust_helper_IS_DIRSYNC(struct inode *inode)
{
	return IS_DIRSYNC(inode);
}

/*
 * Writers that hold the lock shared publish a size: it only grows, and i_lock
 * keeps them apart. Nobody shrinks it, as that needs the lock exclusively.
 */
bool rust_helper_fs_grow_size(struct inode *inode, loff_t size)
{
	bool grown = false;

	spin_lock(&inode->i_lock);
	if (size > i_size_read(inode)) {
		i_size_write(inode, size);
		grown = true;
	}
	spin_unlock(&inode->i_lock);

	return grown;
}

bool rust_helper_is_bad_inode(struct inode *inode)
{
	return is_bad_inode(inode);
}

/*
 * An inode that stays in use loses its list of buffers. They are written first,
 * so that an fsync() of the inode that is read back does not miss them.
 */
void rust_helper_fs_sync_buffers(struct inode *inode)
{
	sync_mapping_buffers(&inode->i_data);
}

void rust_helper_sb_start_intwrite(struct super_block *sb)
{
	sb_start_intwrite(sb);
}

void rust_helper_sb_end_intwrite(struct super_block *sb)
{
	sb_end_intwrite(sb);
}

unsigned int rust_helper_memalloc_nofs_save(void)
{
	return memalloc_nofs_save();
}

void rust_helper_memalloc_nofs_restore(unsigned int flags)
{
	memalloc_nofs_restore(flags);
}

bool rust_helper_fs_is_sync_all(const struct writeback_control *wbc)
{
	return wbc->sync_mode == WB_SYNC_ALL;
}

/* A device without a cache has nothing to flush. */
int rust_helper_fs_sync_device(struct super_block *sb)
{
	int err = sync_blockdev(sb->s_bdev);
	int flush_err = blkdev_issue_flush(sb->s_bdev);

	if (flush_err == -EOPNOTSUPP)
		flush_err = 0;

	return err ?: flush_err;
}

bool rust_helper_fs_has_unlinked_files(struct super_block *sb)
{
	return atomic_long_read(&sb->s_remove_count) > 0;
}

bool rust_helper_fs_is_killed(void)
{
	return fatal_signal_pending(current);
}

bool rust_helper_fs_may_use_reserve(uid_t uid, gid_t gid)
{
	kuid_t kuid = make_kuid(&init_user_ns, uid);
	kgid_t kgid = make_kgid(&init_user_ns, gid);

	if (uid_valid(kuid) && uid_eq(kuid, current_fsuid()))
		return true;
	if (gid_valid(kgid) && !gid_eq(kgid, GLOBAL_ROOT_GID) &&
	    in_group_p(kgid))
		return true;

	return capable(CAP_SYS_RESOURCE);
}

/*
 * The attributes of an inode whose i_rwsem is held, except for the size, which
 * the file system has changed by now.
 */
int rust_helper_fs_setattr_prepare(struct dentry *dentry, struct iattr *attr)
{
	return setattr_prepare(&nop_mnt_idmap, dentry, attr);
}

void rust_helper_fs_setattr_copy(struct inode *inode, const struct iattr *attr)
{
	setattr_copy(&nop_mnt_idmap, inode, attr);
	mark_inode_dirty(inode);
}

void rust_helper_filemap_invalidate_lock(struct address_space *mapping)
{
	filemap_invalidate_lock(mapping);
}

void rust_helper_filemap_invalidate_unlock(struct address_space *mapping)
{
	filemap_invalidate_unlock(mapping);
}

void rust_helper_filemap_invalidate_lock_shared(struct address_space *mapping)
{
	filemap_invalidate_lock_shared(mapping);
}

void rust_helper_filemap_invalidate_unlock_shared(struct address_space *mapping)
{
	filemap_invalidate_unlock_shared(mapping);
}

void rust_helper_sb_start_pagefault(struct super_block *sb)
{
	sb_start_pagefault(sb);
}

void rust_helper_sb_end_pagefault(struct super_block *sb)
{
	sb_end_pagefault(sb);
}

#endif
