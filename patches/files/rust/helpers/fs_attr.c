// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/fileattr.h>
#include <linux/fs.h>
#include <linux/mnt_idmapping.h>
#include <linux/posix_acl.h>
#include <linux/security.h>
#include <linux/xattr.h>

bool rust_helper_fileattr_has_fsx(const struct fileattr *fa)
{
	return fileattr_has_fsx(fa);
}

int rust_helper_security_inode_init_security(struct inode *inode,
					     struct inode *dir,
					     const struct qstr *name,
					     initxattrs store, void *data)
{
	return security_inode_init_security(inode, dir, name, store, data);
}

/*
 * Access control lists. Without CONFIG_FS_POSIX_ACL there are none: no
 * superblock says that it has them, and none can be made.
 */
bool rust_helper_fs_has_posix_acl(const struct super_block *sb)
{
	return sb->s_flags & SB_POSIXACL;
}

struct posix_acl *rust_helper_posix_acl_dup(struct posix_acl *acl)
{
	return posix_acl_dup(acl);
}

void rust_helper_posix_acl_release(struct posix_acl *acl)
{
	posix_acl_release(acl);
}

/* The identities of an entry are those that the owners of inodes are, too. */
u32 rust_helper_fs_acl_get_id(const struct super_block *sb,
			      const struct posix_acl_entry *entry)
{
	switch (entry->e_tag) {
	case ACL_USER:
		return from_kuid(sb->s_user_ns, entry->e_uid);
	case ACL_GROUP:
		return from_kgid(sb->s_user_ns, entry->e_gid);
	default:
		return ACL_UNDEFINED_ID;
	}
}

void rust_helper_fs_acl_set_id(const struct super_block *sb,
			       struct posix_acl_entry *entry, u32 id)
{
	switch (entry->e_tag) {
	case ACL_USER:
		entry->e_uid = make_kuid(sb->s_user_ns, id);
		break;
	case ACL_GROUP:
		entry->e_gid = make_kgid(sb->s_user_ns, id);
		break;
	default:
		entry->e_uid = INVALID_UID;
		break;
	}
}

struct posix_acl *rust_helper_fs_acl_alloc(int count)
{
#ifdef CONFIG_FS_POSIX_ACL
	return posix_acl_alloc(count, GFP_KERNEL);
#else
	return NULL;
#endif
}

int rust_helper_fs_acl_valid(const struct super_block *sb,
			     const struct posix_acl *acl)
{
#ifdef CONFIG_FS_POSIX_ACL
	return posix_acl_valid(sb->s_user_ns, acl);
#else
	return -EOPNOTSUPP;
#endif
}

void rust_helper_fs_acl_set_cached(struct inode *inode, int type,
				   struct posix_acl *acl)
{
#ifdef CONFIG_FS_POSIX_ACL
	set_cached_acl(inode, type, acl);
#endif
}

int rust_helper_fs_acl_create(struct inode *dir, umode_t *mode,
			      struct posix_acl **default_acl,
			      struct posix_acl **acl)
{
	return posix_acl_create(dir, mode, default_acl, acl);
}

int rust_helper_fs_acl_chmod(struct dentry *dentry, umode_t mode)
{
	return posix_acl_chmod(&nop_mnt_idmap, dentry, mode);
}

int rust_helper_fs_acl_update_mode(struct inode *inode, umode_t *mode,
				   struct posix_acl **acl)
{
#ifdef CONFIG_FS_POSIX_ACL
	return posix_acl_update_mode(&nop_mnt_idmap, inode, mode, acl);
#else
	return -EOPNOTSUPP;
#endif
}

#endif
