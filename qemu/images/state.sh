# SPDX-License-Identifier: GPL-2.0
# Images: state fields, bitmaps, orphans, extended attribute blocks.

image e-dirty 4M; super s_state 0
image e-error 4M; super s_state 3
image e-mntcount 4M; tune2fs -c 1 -C 5 "$img" >/dev/null

# The policy for errors, with an error to meet in /d.
image e-errro 4M -b 1024 -e remount-ro; tree; in_dir 28 '\0\0'
image e-errcont 4M -b 1024 -e continue; tree; in_dir 28 '\0\0'
image e-errundef 4M -b 1024; tree; super s_errors 0; in_dir 28 '\0\0'

state() { image "$1" 4M -b 1024; tree; }

# Block bitmap: its own block free, all free, none free, a block in use free.
state e-bbself; edit "freeb $(bitmap_block Block)"
state e-bbzero; fill "$(bitmap_block Block)" 000
state e-bbones; fill "$(bitmap_block Block)" 377
state e-dblfree; edit "freeb $(block_of big 0)"
# Inode bitmap: all free, an inode in use free.
state e-ibzero; fill "$(bitmap_block Inode)" 000
state e-ifree; edit "freei big"
# An inode with blocks and without a name.
state e-orphan; edit "unlink big" "sif <14> links_count 0"

# 128-byte inodes: extended attributes go to a block of their own.
xattr() { image "$1" 4M -b 1024 -I 128; tree; edit "${@:2}"; }
# in_xattr OFFSET BYTES: in the attribute block of big; header at 0, first entry at 32.
in_xattr() { poke $(($(ask "stat big" | sed -n 's/.*File ACL: \([0-9]*\).*/\1/p') * 1024 + $1)) "$2"; }

xattr e-xattr "ea_set big user.a hello" "ea_set big user.b world"
xattr e-xablk "ea_set big user.a hello" "ea_set d/f user.b world"
xattr e-xaref0 "ea_set big user.a hello"; in_xattr 4 '\0\0\0\0'
xattr e-xaref9 "ea_set big user.a hello"; in_xattr 4 '\x09\0\0\0'
xattr e-xavoff "ea_set big user.a hello"; in_xattr 34 '\xff\xff'
xattr e-xanlen "ea_set big user.a hello"; in_xattr 32 "$(printf '\\xff%.0s' {1..992})"
# In the inode itself, where the C driver does not look.
image e-ibodyea 4M -b 1024 -I 256; tree; edit "ea_set big user.inbody hello"
