// SPDX-License-Identifier: GPL-2.0

#ifdef CONFIG_RUST_FS_ABSTRACTIONS

#include <linux/buffer_head.h>

/*
 * b_count does not saturate. A buffer of which that many references have been
 * leaked counts as one that cannot be read, so that the count never wraps.
 */
struct buffer_head *rust_helper_fs_sb_bread(struct super_block *sb,
					    sector_t block)
{
	struct buffer_head *bh = sb_bread(sb, block);

	if (bh && atomic_read(&bh->b_count) > INT_MAX / 2) {
		brelse(bh);
		return NULL;
	}

	return bh;
}

void rust_helper_sb_breadahead(struct super_block *sb, sector_t block)
{
	sb_breadahead(sb, block);
}

void rust_helper_brelse(struct buffer_head *bh)
{
	brelse(bh);
}

/*
 * The buffer belongs to the page cache of the block device, where whoever
 * opened that device may write at any time. The copy is made here, by the
 * rules of C, so that Rust never holds a reference to such memory.
 */
void rust_helper_fs_buffer_copy(void *to, const struct buffer_head *bh,
				size_t offset, size_t len)
{
	memcpy(to, bh->b_data + offset, len);
}

#endif
