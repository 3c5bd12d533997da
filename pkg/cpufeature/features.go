package cpufeature

// Registers of CPUID's answer.
const (
	eax = iota
	ebx
	ecx
	edx
)

// anySub is for leaves that are the same for each subleaf.
const anySub = -1

// word is one register of one leaf.
type word struct {
	leaf uint32
	sub  int
	reg  int
	bits []bit
}

type bit struct {
	name string
	n    uint8
}

// words lists the features that CPUID tells of.
var words = []word{
	{1, anySub, edx, []bit{
		{"fpu", 0}, {"vme", 1}, {"de", 2}, {"pse", 3}, {"tsc", 4}, {"msr", 5}, {"pae", 6}, {"mce", 7},
		{"cx8", 8}, {"apic", 9}, {"sep", 11}, {"mtrr", 12}, {"pge", 13}, {"mca", 14}, {"cmov", 15}, {"pat", 16},
		{"pse36", 17}, {"pn", 18}, {"clflush", 19}, {"dts", 21}, {"acpi", 22}, {"mmx", 23}, {"fxsr", 24},
		{"sse", 25}, {"sse2", 26}, {"ss", 27}, {"ht", 28}, {"tm", 29}, {"pbe", 31},
	}},
	{1, anySub, ecx, []bit{
		{"pni", 0}, {"pclmulqdq", 1}, {"dtes64", 2}, {"monitor", 3}, {"ds_cpl", 4}, {"vmx", 5}, {"smx", 6},
		{"est", 7}, {"tm2", 8}, {"ssse3", 9}, {"cid", 10}, {"sdbg", 11}, {"fma", 12}, {"cx16", 13},
		{"xtpr", 14}, {"pdcm", 15}, {"pcid", 17}, {"dca", 18}, {"sse4_1", 19}, {"sse4_2", 20}, {"x2apic", 21},
		{"movbe", 22}, {"popcnt", 23}, {"tsc_deadline_timer", 24}, {"aes", 25}, {"xsave", 26}, {"osxsave", 27},
		{"avx", 28}, {"f16c", 29}, {"rdrand", 30}, {"hypervisor", 31},
	}},
	{7, 0, ebx, []bit{
		{"fsgsbase", 0}, {"tsc_adjust", 1}, {"bmi1", 3}, {"hle", 4}, {"avx2", 5}, {"smep", 7}, {"bmi2", 8},
		{"erms", 9}, {"invpcid", 10}, {"rtm", 11}, {"cqm", 12}, {"mpx", 14}, {"rdt_a", 15}, {"avx512f", 16},
		{"avx512dq", 17}, {"rdseed", 18}, {"adx", 19}, {"smap", 20}, {"avx512ifma", 21}, {"clflushopt", 23},
		{"clwb", 24}, {"intel_pt", 25}, {"avx512pf", 26}, {"avx512er", 27}, {"avx512cd", 28}, {"sha_ni", 29},
		{"avx512bw", 30}, {"avx512vl", 31},
	}},
	{7, 0, ecx, []bit{
		{"avx512vbmi", 1}, {"umip", 2}, {"pku", 3}, {"ospke", 4}, {"waitpkg", 5}, {"avx512_vbmi2", 6},
		{"user_shstk", 7}, {"gfni", 8}, {"vaes", 9}, {"vpclmulqdq", 10}, {"avx512_vnni", 11},
		{"avx512_bitalg", 12}, {"tme", 13}, {"avx512_vpopcntdq", 14}, {"la57", 16}, {"rdpid", 22},
		{"bus_lock_detect", 24}, {"cldemote", 25}, {"movdiri", 27}, {"movdir64b", 28}, {"enqcmd", 29},
	}},
	{7, 0, edx, []bit{
		{"avx512_4vnniw", 2}, {"avx512_4fmaps", 3}, {"fsrm", 4}, {"avx512_vp2intersect", 8}, {"md_clear", 10},
		{"serialize", 14}, {"tsxldtrk", 16}, {"pconfig", 18}, {"arch_lbr", 19}, {"ibt", 20}, {"amx_bf16", 22},
		{"avx512_fp16", 23}, {"amx_tile", 24}, {"amx_int8", 25}, {"flush_l1d", 28}, {"arch_capabilities", 29},
	}},
	{7, 1, eax, []bit{
		{"sha512", 0}, {"sm3", 1}, {"sm4", 2}, {"avx_vnni", 4}, {"avx512_bf16", 5}, {"lass", 6},
		{"cmpccxadd", 7}, {"fzrm", 10}, {"fsrs", 11}, {"fsrc", 12}, {"fred", 17}, {"lkgs", 18},
		{"amx_fp16", 21}, {"avx_ifma", 23}, {"lam", 26},
	}},
	{7, 1, edx, []bit{
		{"avx_vnni_int8", 4}, {"avx_ne_convert", 5}, {"amx_complex", 8}, {"avx_vnni_int16", 10},
		{"prefetchiti", 14}, {"avx10", 19},
	}},
	{0xd, 1, eax, []bit{
		{"xsaveopt", 0}, {"xsavec", 1}, {"xgetbv1", 2}, {"xsaves", 3}, {"xfd", 4},
	}},
	{0x80000001, anySub, edx, []bit{
		{"syscall", 11}, {"mp", 19}, {"nx", 20}, {"mmxext", 22}, {"fxsr_opt", 25}, {"pdpe1gb", 26},
		{"rdtscp", 27}, {"lm", 29}, {"3dnowext", 30}, {"3dnow", 31},
	}},
	{0x80000001, anySub, ecx, []bit{
		{"lahf_lm", 0}, {"cmp_legacy", 1}, {"svm", 2}, {"extapic", 3}, {"cr8_legacy", 4}, {"abm", 5},
		{"sse4a", 6}, {"misalignsse", 7}, {"3dnowprefetch", 8}, {"osvw", 9}, {"ibs", 10}, {"xop", 11},
		{"skinit", 12}, {"wdt", 13}, {"lwp", 15}, {"fma4", 16}, {"tce", 17}, {"nodeid_msr", 19}, {"tbm", 21},
		{"topoext", 22}, {"perfctr_core", 23}, {"perfctr_nb", 24}, {"bpext", 26}, {"ptsc", 27},
		{"perfctr_llc", 28}, {"mwaitx", 29},
	}},
	{0x80000008, anySub, ebx, []bit{
		{"clzero", 0}, {"irperf", 1}, {"xsaveerptr", 2}, {"rdpru", 4}, {"wbnoinvd", 9},
	}},
	{6, anySub, eax, []bit{
		{"dtherm", 0}, {"ida", 1}, {"arat", 2},
	}},
}

// needs lists for a feature what it does not work without; of what that needs, only the nearest.
var needs = map[string][]string{
	"ssse3":               {"pni"},
	"sse4_1":              {"ssse3"},
	"sse4_2":              {"sse4_1"},
	"aes":                 {"pni"},
	"sse4a":               {"pni"},
	"osxsave":             {"xsave"},
	"xsaveopt":            {"xsave"},
	"xsavec":              {"xsave"},
	"xgetbv1":             {"xsavec"},
	"xsaves":              {"xsavec"},
	"xfd":                 {"xsaves"},
	"mpx":                 {"xsave"},
	"pku":                 {"xsave"},
	"ospke":               {"pku"},
	"avx":                 {"xsave", "sse4_2"},
	"f16c":                {"avx"},
	"fma":                 {"avx"},
	"fma4":                {"avx"},
	"xop":                 {"avx"},
	"avx2":                {"avx"},
	"vaes":                {"avx", "aes"},
	"vpclmulqdq":          {"avx", "pclmulqdq"},
	"sha512":              {"avx2"},
	"sm3":                 {"avx"},
	"sm4":                 {"avx2"},
	"avx_vnni":            {"avx2"},
	"avx_ifma":            {"avx2"},
	"avx_vnni_int8":       {"avx2"},
	"avx_vnni_int16":      {"avx2"},
	"avx_ne_convert":      {"avx2"},
	"avx512f":             {"avx2", "f16c", "fma"},
	"avx512dq":            {"avx512f"},
	"avx512ifma":          {"avx512f"},
	"avx512pf":            {"avx512f"},
	"avx512er":            {"avx512f"},
	"avx512cd":            {"avx512f"},
	"avx512bw":            {"avx512f"},
	"avx512vl":            {"avx512f"},
	"avx512vbmi":          {"avx512bw"},
	"avx512_vbmi2":        {"avx512bw"},
	"avx512_bitalg":       {"avx512bw"},
	"avx512_vnni":         {"avx512f"},
	"avx512_vpopcntdq":    {"avx512f"},
	"avx512_4vnniw":       {"avx512f"},
	"avx512_4fmaps":       {"avx512f"},
	"avx512_vp2intersect": {"avx512f"},
	"avx512_bf16":         {"avx512bw"},
	"avx512_fp16":         {"avx512bw", "avx512dq", "avx512vl"},
	"avx10":               {"avx512f"},
	"amx_tile":            {"xfd"},
	"amx_bf16":            {"amx_tile"},
	"amx_int8":            {"amx_tile"},
	"amx_fp16":            {"amx_tile"},
	"amx_complex":         {"amx_tile"},
	"tsxldtrk":            {"rtm"},
}

// baseline are the features that every 64-bit program counts on (the x86-64 psABI, and what makes the mode).
var baseline = map[string]bool{
	"fpu": true, "tsc": true, "pae": true, "cx8": true, "cmov": true, "mmx": true, "fxsr": true, "sse": true, "sse2": true,
	"syscall": true, "nx": true, "lm": true,
}
