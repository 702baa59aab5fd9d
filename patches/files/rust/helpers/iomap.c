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

void rust_helper_kiocb_clone(struct kiocb *to, struct kiocb *from,
			     struct file *file)
{
	kiocb_clone(to, from, file);
}

void rust_helper_inode_dio_begin(struct inode *inode)
{
	inode_dio_begin(inode);
}

void rust_helper_inode_dio_end(struct inode *inode)
{
	inode_dio_end(inode);
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

void rust_helper_fs_unlock_folio(struct folio *folio)
{
	folio_unlock(folio);
	folio_put(folio);
}

/*
 * What a folio holds stays as it is, because others may have mapped it and
 * store to it.
 */
int rust_helper_fs_dirty_range(struct inode *inode, loff_t start, loff_t end)
{
	struct address_space *mapping = inode->i_mapping;
	loff_t pos = start;

	if (mapping->a_ops->release_folio != iomap_release_folio)
		return -EINVAL;

	while (pos < end) {
		struct folio *folio = read_mapping_folio(mapping,
							 pos >> PAGE_SHIFT, NULL);

		if (IS_ERR(folio))
			return PTR_ERR(folio);
		folio_lock(folio);
		/* Or it has gone meanwhile, and is read once more. */
		if (folio->mapping == mapping) {
			folio_mark_dirty(folio);
			pos = folio_pos(folio) + folio_size(folio);
		}
		folio_unlock(folio);
		folio_put(folio);
	}

	return 0;
}

/*
 * iomap_page_mkwrite() asks for blocks for all of a folio. Without unwritten
 * extents that fills holes around the page that is written to, and fails on a
 * full device although the page has its blocks. The other pages of the folio
 * stay write-protected and ask for themselves.
 */
vm_fault_t rust_helper_fs_page_mkwrite_begin(struct vm_fault *vmf, loff_t *pos,
					     u64 *len)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct folio *folio = page_folio(vmf->page);
	ssize_t valid;

	folio_lock(folio);
	valid = folio_mkwrite_check_truncate(folio, inode);
	*pos = (loff_t)vmf->pgoff << PAGE_SHIFT;
	if (valid < 0 || *pos >= folio_pos(folio) + valid) {
		folio_unlock(folio);
		return VM_FAULT_NOPAGE;
	}
	*len = min_t(u64, PAGE_SIZE, folio_pos(folio) + valid - *pos);

	return 0;
}

vm_fault_t rust_helper_fs_page_mkwrite_end(struct vm_fault *vmf, int err)
{
	struct folio *folio = page_folio(vmf->page);

	if (err) {
		folio_unlock(folio);
		return vmf_fs_error(err);
	}
	folio_mark_dirty(folio);
	folio_wait_stable(folio);

	return VM_FAULT_LOCKED;
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
