package oauth2

// Generation tells a client or person from others of the same name: it grows each time that the name is added to the
// store. It is 0 in the configuration, whose entries may move to the store and back, and keep what they had.
type Generation int64

// IsAnother reports whether what was given to one generation is not another one's.
func (g Generation) IsAnother(than Generation) bool { return g != 0 && than != 0 && g != than }
