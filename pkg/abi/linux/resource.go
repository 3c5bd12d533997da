package linux

// RLIM_NLIMITS is the number of resources of getrlimit(2).
const RLIM_NLIMITS = 16
