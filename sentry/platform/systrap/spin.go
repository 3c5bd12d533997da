package systrap

// spinner decides whether spinning for the guest is worth it.
type spinner struct {
	skip    int // runs for which not to spin
	long    int // runs in a row that outlasted spinning
	backoff int // last skip after runs that should not have
}

const (
	spinLongMax = 4  // long runs before spinning stops
	spinSkip    = 31 // runs after which to try again
)

func (s *spinner) worth() bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	return true
}

// slept is told of a run that ended in sleep: whether spinning was tried, and
// whether the guest ran for less than that takes.
func (s *spinner) slept(tried, short bool) {
	switch {
	case tried && short:
		// The guest's thread, or this one, did not get a processor.
		s.backoff = min(2*s.backoff+1, spinSkip)
		s.skip = s.backoff
	case tried:
		if s.long++; s.long >= spinLongMax {
			s.skip = spinSkip
		}
	case short && s.long >= spinLongMax:
		s.long, s.skip = 0, 0
	}
}

// Waking a sleeping thread may take long, when its processor is idle itself.
// wakePolls is how many times pollTime is spent on that before the waker
// sleeps too; runPolls is how many are spent on a guest that runs.
const (
	wakePolls = 8
	runPolls  = 2
)
