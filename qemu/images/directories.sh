# SPDX-License-Identifier: GPL-2.0
# Images: directory entries, one wrong field each, in the block of /d.

dir() { image "$1" 4M -b 1024; tree; }

# rec_len of "f": zero, too small, not a multiple of 4, beyond the block.
dir d-reclen0; in_dir 28 '\0\0'
dir d-reclen8; in_dir 28 '\x08\0'
dir d-reclen13; in_dir 28 '\x0d\0'
dir d-span; in_dir 28 '\xff\x7f'
# "..": a name longer than its record.
dir d-namelen; in_dir 16 '\x0c\0\xff\x02'

dir d-inohuge; in_dir 24 '\xff\xff\xff\x7f'
dir d-dotwrong; in_dir 0 '\x02\0\0\0'
dir d-dotdotwrong; in_dir 12 '\x0b\0\0\0'
dir d-nodot; in_dir 8 'xx'
dir d-slash; in_dir 32 '/'
dir d-nul; in_dir 32 '\0'
dir d-ftypewrong; in_dir 31 '\x02'
dir d-ftype9; in_dir 31 '\x09'
dir d-allzero; fill "$(block_of d 0)" 000
dir d-hardlink; edit "mkdir d/sub" "link d d/sub/loop"
# A second entry, "g" at 36, renamed to "f".
dir d-dupname; edit "write $tmp/big d/g"; in_dir 44 'f'
