#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# make.sh OUT: makes the images of the suite "images" in the folder OUT, one
# NAME.img each, with mke2fs and debugfs. The same e2fsprogs makes the same
# bytes every time.
#
# A recipe starts with "image NAME SIZE [MKE2FS-ARGUMENT...]" and changes that
# image with the functions below; recipes are in the files named at the end,
# one file a theme, made in parallel.

set -euo pipefail
umask 022
export LC_ALL=C MKE2FS_SYNC=0 E2FSPROGS_FAKE_TIME=1700000000 E2FSCK_TIME=1700000000

here=$(cd "$(dirname "$0")" && pwd)
export MKE2FS_CONFIG=$here/mke2fs.conf
mkdir -p "${1:?usage: make.sh OUT}"
cd "$1"

die() { echo "make.sh: $img: $*" >&2; exit 1; }

# image NAME SIZE [ARGUMENT...]: a new image; what follows works on it.
image() {
	img=$1.img
	rm -f "$img"
	truncate -s "$2" "$img"
	local said
	# It warns of 128-byte inodes and of blocks larger than a page.
	said=$(mke2fs -q -F -t ext2 -U $uuid -E root_owner=0:0,hash_seed=$uuid \
		"${@:3}" "$img" 2>&1) || die "mke2fs: $said"
}

# rev0: the mke2fs arguments for revision 0; -r has gone after 1.47.0.
rev0() {
	case $(mke2fs -V 2>&1) in
	*" 1.47.0 "*) echo "-r 0" ;;
	*) echo "-E root_owner=0:0,hash_seed=$uuid,revision=0" ;;
	esac
}

# edit COMMAND...: debugfs commands. debugfs exits with 0 after an error, but
# says more on stderr than its banner.
edit() {
	local said
	said=$(printf '%s\n' "$@" | debugfs -w -f /dev/stdin "$img" 2>&1 >/dev/null | sed 1d)
	[[ -z $said ]] || die "debugfs: $said"
}

# ask COMMAND: what debugfs answers.
ask() { debugfs -R "$1" "$img" 2>/dev/null; }

# tree: the files that most images hold. `big` reaches into the double
# indirect block of 1 KiB blocks.
tree() {
	edit "mkdir d" "write $tmp/hello d/f" "write $tmp/big big" "symlink fast abc" \
		"symlink slow $(printf 'x%.0s' {1..100})" \
		"mknod nul c 1 3" "mknod bigdev b 259 300" "mknod fifo p"
}

# poke OFFSET BYTES: bytes, as for printf, at an offset of the image.
poke() { printf "$2" | dd of="$img" bs=1 seek="$1" conv=notrunc status=none; }

# le16 VALUE, le32 VALUE: the bytes of a little-endian number, as for printf.
le16() { printf '\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)); }
le32() { printf '%s%s' "$(le16 "$1")" "$(le16 $(($1 >> 16)))"; }

# fill BLOCK BYTE: a 1 KiB block full of one byte, given in octal.
fill() { head -c 1024 /dev/zero | tr '\0' "\\$2" | dd of="$img" bs=1024 seek="$1" conv=notrunc status=none; }

# super FIELD VALUE: a field of the superblock, and nothing else.
super() {
	local at
	case $1 in
	s_inodes_count) at=0 ;; s_blocks_count) at=4 ;; s_r_blocks_count) at=8 ;;
	s_free_blocks_count) at=12 ;; s_first_data_block) at=20 ;;
	s_log_block_size) at=24 ;; s_log_frag_size) at=28 ;;
	s_blocks_per_group) at=32 ;; s_inodes_per_group) at=40 ;;
	s_rev_level) at=76 ;; s_first_ino) at=84 ;;
	s_feature_compat) at=92 ;; s_feature_incompat) at=96 ;;
	s_feature_ro_compat) at=100 ;; s_first_meta_bg) at=260 ;;
	s_state) poke $((1024 + 58)) "$(le16 "$2")"; return ;;
	s_errors) poke $((1024 + 60)) "$(le16 "$2")"; return ;;
	s_inode_size) poke $((1024 + 88)) "$(le16 "$2")"; return ;;
	*) die "no superblock field $1" ;;
	esac
	poke $((1024 + at)) "$(le32 "$2")"
}

# group0 FIELD VALUE: a field of the first group descriptor (1 KiB blocks).
group0() {
	case $1 in
	bg_block_bitmap) poke 2048 "$(le32 "$2")" ;;
	bg_inode_bitmap) poke 2052 "$(le32 "$2")" ;;
	bg_inode_table) poke 2056 "$(le32 "$2")" ;;
	bg_free_blocks_count) poke 2060 "$(le16 "$2")" ;;
	*) die "no group descriptor field $1" ;;
	esac
}

# block_of FILE N: the disk block of file block N.
block_of() { ask "bmap $1 $2"; }

# map_block FILE IND|DIND: the disk block of an indirect block.
map_block() { ask "stat $1" | grep -o "($2):[0-9]*" | head -1 | cut -d: -f2; }

# bitmap_block Block|Inode: the disk block of a bitmap of group 0.
bitmap_block() { dumpe2fs "$img" 2>/dev/null | sed -n "s/.*$1 bitmap at \([0-9]*\).*/\1/p" | head -1; }

# in_dir OFFSET BYTES: bytes in the first block of directory d (1 KiB blocks):
# "." is at 0, ".." at 12, "f" at 24.
in_dir() { poke $(($(block_of d 0) * 1024 + $1)) "$2"; }

img=make.sh uuid=11111111-2222-3333-4444-555555555555
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo hello >"$tmp/hello"
seq 1 100000 >"$tmp/numbers"
head -c 300000 "$tmp/numbers" >"$tmp/big"

jobs=()
for theme in features geometry inodes directories state; do
	(trap - EXIT; source "$here/$theme.sh") &
	jobs+=($!)
done
for job in "${jobs[@]}"; do
	wait "$job"
done
