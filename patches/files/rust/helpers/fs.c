// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/backing-dev.h>
#include <linux/delayed_call.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/statfs.h>

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
 * off the hash and the writeback lists, so that nothing in the kernel reaches
 * them once the superblock is gone, and keep the module, whose code frees
 * them, for ever. The extra reference keeps each of them on s_inodes while
 * the list lock is dropped; it is never returned.
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

bool rust_helper_fs_is_named_directory(struct inode *inode)
{
	return S_ISDIR(inode->i_mode) && !hlist_empty(&inode->i_dentry);
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

#endif
