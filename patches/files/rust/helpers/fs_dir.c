// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/dcache.h>
#include <linux/fs.h>

/*
 * What ->tmpfile() does with its new inode. d_tmpfile() would count down a link
 * that it takes for granted; here the count is set, whatever it was.
 */
int rust_helper_fs_open_tmpfile(struct file *file, struct inode *inode)
{
	clear_nlink(inode);
	mark_inode_dirty(inode);
	d_mark_tmpfile(file, inode);
	d_instantiate_new(file->f_path.dentry, inode);

	return finish_open_simple(file, 0);
}

#endif
