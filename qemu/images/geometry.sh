# SPDX-License-Identifier: GPL-2.0
# Images: block, inode and group sizes; counts; group descriptors.

# The last three are larger than a page.
for size in 1024 2048 4096 8192 16384 65536; do
	image b-bs$size 16M -b $size; tree
done
for size in 128 256 512 1024; do
	image b-is$size 4M -b 4096 -I $size; tree
done

image b-lastgroup 9M -b 1024 -g 4096; tree
image b-onegroup 64K -b 1024 -N 16
image b-fewino 4M -b 1024 -N 16
image b-full 2M -b 1024 -m 0
image b-resv 4M -m 50; tune2fs -u 1000 -g 1000 "$img" >/dev/null

image b-badlogbs 4M; super s_log_block_size 31
image b-badlogbs7 4M; super s_log_block_size 7
image b-frag 4M -b 4096; super s_log_frag_size 1
image b-is0 4M; super s_inode_size 0
image b-is100 4M; super s_inode_size 100
image b-is8192 4M -b 4096; super s_inode_size 8192
image b-firstino 4M; super s_first_ino 20

image b-bpg0 4M; super s_blocks_per_group 0
image b-bpgbig 4M -b 1024; super s_blocks_per_group 8200
image b-ipg0 4M; super s_inodes_per_group 0
image b-ipgbig 4M -b 1024; super s_inodes_per_group 9000
image b-icount 4M; super s_inodes_count 4000000000
image b-bcount0 4M; super s_blocks_count 0
image b-bcount1 4M; super s_blocks_count 1
image b-bcounthuge 4M; super s_blocks_count 4294967295
# A device that is smaller than the file system says.
image b-short 8M -b 1024; truncate -s 4M "$img"
# The superblock is in block 1 of 1 KiB blocks and in block 0 of all others.
image b-fdb0 4M -b 1024; super s_first_data_block 0
image b-fdb1 4M -b 4096; super s_first_data_block 1
image b-fdbhuge 4M -b 1024; super s_first_data_block 4294967295
image b-rbig 4M -b 1024; super s_r_blocks_count 5000
image b-fmbhuge 64M -b 1024 -g 512 -O meta_bg,^resize_inode; super s_first_meta_bg 4294967295
image b-freebad 4M; super s_free_blocks_count 4000000000

# Descriptors that disagree with the bitmap, or point at other metadata.
image b-bgfree 4M -b 1024; group0 bg_free_blocks_count 8000
image b-bgfree0 4M -b 1024; group0 bg_free_blocks_count 0
for field in block_bitmap inode_bitmap inode_table; do
	for block in 0 1 4000000000; do
		image b-bg-$field-$block 4M -b 1024; group0 bg_$field $block
	done
done
