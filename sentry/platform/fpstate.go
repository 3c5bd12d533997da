package platform

// FPState is a floating point state by the parts that XSAVE has, independent
// of where the host's signal frames have them.
type FPState struct {
	Legacy     []byte // the FXSAVE area
	InUse      uint64 // XSTATE_BV
	Components []FPComponent
}

// FPComponent is a component by its bit in XCR0, 2 or more. Here and in Legacy
// zeros at the end may be left out.
type FPComponent struct {
	Bit  uint8
	Data []byte
}

// FPConverter is implemented by platforms that can take a state apart and put
// it together, for an image that another host restores.
type FPConverter interface {
	// SplitFP takes apart what Context.FPState returned, not nil.
	SplitFP(fp []byte) (FPState, error)
	// JoinFP is the way back; the result still has to pass Context.SetFPState.
	// It fails for a component that the host lacks.
	JoinFP(s FPState) ([]byte, error)
}
