// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/iomap.h>

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
				    unsigned int flags)
{
	return iomap_dio_rw(iocb, iter, ops, dops, flags, NULL, 0);
}

#endif
