// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/writeback.h>

/* The prototypes below are the same on every kernel; the calls are not. */

int rust_helper_fs_iomap_read_folio(struct folio *folio,
				    const struct iomap_ops *ops)
{
	return iomap_read_folio(folio, ops);
}

void rust_helper_fs_iomap_readahead(struct readahead_control *rac,
				    const struct iomap_ops *ops)
{
	iomap_readahead(rac, ops);
}

ssize_t rust_helper_fs_iomap_buffered_write(struct kiocb *iocb,
					    struct iov_iter *from,
					    const struct iomap_ops *ops)
{
	return iomap_file_buffered_write(iocb, from, ops, NULL);
}

ssize_t rust_helper_fs_iomap_dio_rw(struct kiocb *iocb, struct iov_iter *iter,
				    const struct iomap_ops *ops,
				    const struct iomap_dio_ops *dops,
				    unsigned int flags, void *private)
{
	return iomap_dio_rw(iocb, iter, ops, dops, flags, private, 0);
}

/* What the caller of iomap_dio_rw() has given, in iomap_begin(). */
void *rust_helper_fs_iomap_private(struct iomap *iomap)
{
	return container_of(iomap, struct iomap_iter, iomap)->private;
}

/*
 * What iomap keeps for its folios must come back to iomap: others take it for
 * buffers. So the inode has to be a regular file that is set up.
 */
int rust_helper_fs_iomap_zero_range(struct inode *inode, loff_t pos, loff_t len,
				    const struct iomap_ops *ops)
{
	if (inode->i_mapping->a_ops->release_folio != iomap_release_folio)
		return -EINVAL;

	return iomap_zero_range(inode, pos, len, NULL, ops);
}

vm_fault_t rust_helper_fs_iomap_page_mkwrite(struct vm_fault *vmf,
					     const struct iomap_ops *ops)
{
	return iomap_page_mkwrite(vmf, ops);
}

/*
 * Folios that were read while the blocks under them were a hole, and that a
 * direct write has filled since.
 */
void rust_helper_fs_invalidate_written(struct kiocb *iocb, size_t count)
{
	kiocb_invalidate_post_direct_write(iocb, count);
}

int rust_helper_fs_iomap_writepages(struct address_space *mapping,
				    struct writeback_control *wbc,
				    const struct iomap_writeback_ops *ops)
{
	struct iomap_writepage_ctx wpc = { };

	return iomap_writepages(mapping, wbc, &wpc, ops);
}

#endif
