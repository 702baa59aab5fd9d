# SPDX-License-Identifier: GPL-2.0
# Images: inodes, one wrong or extreme field each (1 KiB blocks).

inode() { image "$1" 4M -b 1024; tree; }

inode c-rootfile; edit "sif <2> mode 0100644"
inode c-rootnlink0; edit "sif <2> links_count 0"
inode c-rootsize0; edit "sif <2> size 0"
inode c-rootblk0; edit "sif <2> block[0] 0"

# A name that leads to an inode without links: live, and deleted.
inode c-nlink0; edit "sif big links_count 0"
inode c-deleted; edit "sif big links_count 0" "sif big dtime 20200101000000"
inode c-mode0; edit "sif big mode 0"
inode c-badmode; edit "sif big mode 0170644"
inode c-resino; edit "link <8> jrnl"

inode c-neg; edit "sif big size 0xffffffffffffffff"
inode c-sizehuge; edit "sif big size 0x7fffffffffffffff"
inode c-iblocks; edit "sif big blocks 2"
inode c-dirsizehigh; edit "sif d size_hi 1"
inode c-dirodd; edit "sif d size 1000"
inode c-dirhuge; edit "sif d size 2147483648"
inode c-dirhole; edit "sif d size 3072"

# Block pointers: out of range, at metadata, at themselves, at other's data.
inode c-blkoob; edit "sif big block[0] 0x7fffffff"
inode c-blk0sb; edit "sif big block[0] 1"
inode c-indoob; edit "sif big block[IND] 0x7fffffff"
inode c-indmeta; edit "sif big block[IND] 3"
inode c-indself; block=$(map_block big DIND); poke $((block * 1024)) "$(le32 "$block")"
inode c-indselfI; block=$(map_block big IND); poke $((block * 1024)) "$(le32 "$block")"
inode c-dup; edit "sif d/f block[0] $(block_of big 0)"

# Extended attribute blocks: the superblock, out of range, not one at all.
inode c-acl1; edit "sif big file_acl 1"
inode c-acloob; edit "sif big file_acl 0x7fffffff"
inode c-acldata; edit "sif big file_acl $(block_of big 5)"

# Symbolic links: the size does not fit the place of the target.
inode c-fastlong; edit "sif fast size 200"
inode c-fast0; edit "sif fast size 0"
inode c-slowbig; edit "sif slow size 100000"
# A fast one with an attribute block: i_blocks is not 0.
inode c-fastea; edit "ea_set fast trusted.a $(printf '1234567890%.0s' {1..13})"

# Flags: immutable, append-only, synchronous directory; of features that are off.
inode c-flags; edit "mkdir imm" "sif big flags 0x10" "sif d/f flags 0x20" "sif d flags 0x10000"
inode c-extflag; edit "sif big flags 0x80000"
inode c-inlineflag; edit "sif big flags 0x10000000"

inode c-y2038; edit "sif big mtime 20370101000000" "sif d/f mtime 19100101000000"
image c-extratime 4M -b 1024 -I 256; tree
edit "sif big mtime 20500101000000" "sif big mtime_extra 1" "sif big extra_isize 32"
inode c-uid32; edit "sif big uid 100000" "sif big gid 200000"

inode c-nlmax; edit "sif big links_count 32000"
inode c-dirnlmax; edit "sif / links_count 32000"
inode c-dirnl1; edit "sif / links_count 65000"
