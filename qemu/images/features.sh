# SPDX-License-Identifier: GPL-2.0
# Images: feature flags and revisions.

image a-default 4M; tree
image a-rev0 4M $(rev0); tree
image a-nofiletype 4M -O ^filetype; tree
image a-nosparse 64M -b 1024 -g 8192 -O ^sparse_super,^resize_inode; tree
image a-nolargefile 8M -O ^large_file; tree
# 128 groups with 4 blocks of descriptors, spread over the groups.
image a-metabg 64M -b 1024 -g 512 -O meta_bg,^resize_inode; tree
image a-noresize 4M -O ^resize_inode
image a-hurd 4M -o hurd -b 4096 -I 128
# A clean ext3: every ext2 may mount it.
image a-journal 8M -j; tree

# Incompatible features: to be refused, read-only too.
image a-recover 8M -j; edit "feature needs_recovery"
image a-extents 4M; edit "feature extent"
image a-64bit 4M; edit "feature 64bit"
image a-flexbg 4M; edit "feature flex_bg"
image a-inline 4M; edit "feature inline_data"
image a-journaldev 4M; edit "feature journal_dev"
image a-incompat31 4M; edit "feature FEATURE_I31"
image a-rev0flags 4M $(rev0); super s_feature_incompat 0x40

# Read-only compatible features: to be mounted read-only, refused read-write.
for feature in huge_file uninit_bg dir_nlink extra_isize quota metadata_csum project FEATURE_R31; do
	image a-ro-$feature 4M; edit "feature $feature"
done
# The bit of directories in B-trees, which no driver ever used.
image a-btreedir 4M; edit "feature FEATURE_R2"

# Compatible features: never a reason to refuse.
for feature in sparse_super2 FEATURE_C31 imagic_inodes dir_prealloc; do
	image a-compat-$feature 4M; edit "feature $feature"
done

# Too new a revision: read-only.
image a-rev2 4M; super s_rev_level 2

# A directory with an index, made by e2fsck (which exits with 1: it changed something).
image a-htree 8M -b 1024
mapfile -t links < <(seq -f 'symlink entry_number_%g t' 1 300)
edit "mkdir h" "cd h" "${links[@]}"
e2fsck -fyD "$img" >/dev/null 2>&1 || [[ $? == 1 ]] || die "e2fsck failed"
