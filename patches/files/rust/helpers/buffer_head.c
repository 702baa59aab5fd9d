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

/*
 * The block gets a new meaning: what the buffer and the device hold for it is
 * of no interest. The lock waits for IO that is still under way.
 */
struct buffer_head *rust_helper_fs_sb_bnew(struct super_block *sb,
					   sector_t block)
{
	struct buffer_head *bh = sb_getblk(sb, block);

	if (!bh)
		return NULL;
	if (atomic_read(&bh->b_count) > INT_MAX / 2) {
		brelse(bh);
		return NULL;
	}

	lock_buffer(bh);
	memset(bh->b_data, 0, bh->b_size);
	clear_buffer_checked(bh);
	set_buffer_uptodate(bh);
	unlock_buffer(bh);

	return bh;
}

void rust_helper_fs_clean_bdev_aliases(struct super_block *sb, sector_t block,
				       sector_t count)
{
	clean_bdev_aliases(sb->s_bdev, block, count);
}

void rust_helper_fs_buffer_write(struct buffer_head *bh, size_t offset,
				 const void *from, size_t len)
{
	memcpy(bh->b_data + offset, from, len);
}

void rust_helper_fs_buffer_zero(struct buffer_head *bh, size_t offset,
				size_t len)
{
	memset(bh->b_data + offset, 0, len);
}

/*
 * A write that failed leaves the buffer not up to date, although it still
 * holds what should have been written.
 */
void rust_helper_fs_buffer_mark_dirty(struct buffer_head *bh)
{
	if (unlikely(!buffer_uptodate(bh)))
		set_buffer_uptodate(bh);
	mark_buffer_dirty(bh);
}

/* A buffer of another device cannot be written by an fsync() of this inode. */
void rust_helper_fs_buffer_mark_dirty_inode(struct buffer_head *bh,
					    struct inode *inode)
{
	if (unlikely(!buffer_uptodate(bh)))
		set_buffer_uptodate(bh);
	if (likely(bh->b_bdev == inode->i_sb->s_bdev))
		mark_buffer_dirty_inode(bh, inode);
	else
		mark_buffer_dirty(bh);
}

void rust_helper_bforget(struct buffer_head *bh)
{
	bforget(bh);
}

bool rust_helper_fs_buffer_test_bit(const struct buffer_head *bh, size_t bit)
{
	return test_bit_le(bit, bh->b_data);
}

bool rust_helper_fs_buffer_test_and_set_bit(struct buffer_head *bh, size_t bit)
{
	return test_and_set_bit_le(bit, bh->b_data);
}

bool rust_helper_fs_buffer_test_and_clear_bit(struct buffer_head *bh,
					      size_t bit)
{
	return test_and_clear_bit_le(bit, bh->b_data);
}

/*
 * The bits from @from on and in front of @end, which lie in one word: all of
 * them at once, if none is as it should become. Others may change their
 * neighbours.
 */
static bool fs_buffer_flip_word(struct buffer_head *bh, size_t from, size_t end,
				bool set)
{
#if defined(__LITTLE_ENDIAN)
	unsigned long *word = (unsigned long *)bh->b_data + BIT_WORD(from);
	unsigned long mask = GENMASK((end - 1) % BITS_PER_LONG,
				     from % BITS_PER_LONG);
	unsigned long old = READ_ONCE(*word);

	do {
		if ((old & mask) != (set ? 0 : mask))
			return false;
	} while (!try_cmpxchg(word, &old, old ^ mask));

	return true;
#else
	return false;
#endif
}

static __always_inline size_t fs_buffer_flip(struct buffer_head *bh,
					     size_t from, size_t end, bool set)
{
	size_t bit = from;

	while (bit < end) {
		size_t next = min(end, round_down(bit, BITS_PER_LONG) +
				       BITS_PER_LONG);

		if (fs_buffer_flip_word(bh, bit, next, set)) {
			bit = next;
			continue;
		}
		for (; bit < next; bit++) {
			if (set ? test_and_set_bit_le(bit, bh->b_data) :
				  !test_and_clear_bit_le(bit, bh->b_data))
				return bit - from;
		}
	}

	return bit - from;
}

size_t rust_helper_fs_buffer_set_zeros(struct buffer_head *bh, size_t from,
				       size_t end)
{
	return fs_buffer_flip(bh, from, end, true);
}

size_t rust_helper_fs_buffer_clear_ones(struct buffer_head *bh, size_t from,
					size_t end)
{
	return fs_buffer_flip(bh, from, end, false);
}

size_t rust_helper_fs_buffer_find_zero_bit(const struct buffer_head *bh,
					   size_t from, size_t end)
{
	return find_next_zero_bit_le(bh->b_data, end, from);
}

size_t rust_helper_fs_buffer_find_set_bit(const struct buffer_head *bh,
					  size_t from, size_t end)
{
	return find_next_bit_le(bh->b_data, end, from);
}

bool rust_helper_buffer_checked(const struct buffer_head *bh)
{
	return buffer_checked(bh);
}

void rust_helper_set_buffer_checked(struct buffer_head *bh)
{
	set_buffer_checked(bh);
}

#endif
