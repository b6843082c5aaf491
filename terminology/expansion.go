package terminology

import (
	"crypto/sha256"
	"slices"
)

// entry is one code of an expansion. Its concept is none where the code system, or the code in it, is
// not here and a value set merely lists the code; listed is the row of Library.listed then, and wherever
// a value set gives its own display; else it is 0.
type entry struct{ codeSystem, concept, listed uint32 }

// expansion is a value set's codes in order, each once. It is kept and shared, and must not be changed.
type expansion struct {
	entries     []entry
	codeSystems []uint32    // the code systems used, in order of first use
	valueSets   []*valueSet // the value sets imported, directly or not
	versioned   bool        // holds codes from more than one version of a code system
	unclosed    bool        // uses a code system of which only a part is here
	digest      [sha256.Size]byte
	searcher    *searcher
}

// code returns an entry's code.
func (l *Library) code(e entry) []byte {
	if e.concept != none {
		return l.codeSystems[e.codeSystem].codeOf(e.concept)
	}
	return l.listed.texts.at(l.listed.code[e.listed])
}

// display returns an entry's display: the value set's own, else the code system's, else nil.
func (l *Library) display(e entry) []byte {
	if own := l.listed.texts.at(l.listed.display[e.listed]); len(own) > 0 || e.concept == none {
		return own
	}
	return l.codeSystems[e.codeSystem].displayOf(e.concept)
}

// flags returns what is known of an entry's concept.
func (l *Library) flags(e entry) conceptFlags {
	if e.concept == none {
		return 0
	}
	return l.codeSystems[e.codeSystem].flags[e.concept]
}

// systemOf returns the index in Library.systems of an entry's code system.
func (l *Library) systemOf(e entry) uint32 {
	if e.concept != none {
		return l.codeSystems[e.codeSystem].system
	}
	return l.listed.system[e.listed]
}

// seal works out what the answer says of the expansion as a whole.
func (l *Library) seal(x *expansion) {
	versions := make(map[uint32]uint32) // by system
	for _, index := range x.codeSystems {
		cs := l.codeSystems[index]
		versions[cs.system]++
		x.versioned = x.versioned || versions[cs.system] > 1
		x.unclosed = x.unclosed || cs.content != contentComplete
	}
	x.entries = slices.Clip(x.entries)
	x.digest = l.digest(x)
	x.searcher = new(searcher)
}

// digest is a hash over all that the entries say, so that two expansions have the same one exactly if
// they have the same content.
func (l *Library) digest(x *expansion) (sum [sha256.Size]byte) {
	hash := sha256.New()
	var line []byte
	field := func(s []byte) { line = append(append(line, s...), 0xff) } // 0xff is in no UTF-8 text
	for _, index := range x.codeSystems {
		line = line[:0]
		field([]byte(l.codeSystems[index].canonical()))
		hash.Write(line)
	}
	for _, e := range x.entries {
		line = line[:0]
		field([]byte(l.systems[l.systemOf(e)].url))
		field(l.code(e))
		field(l.display(e))
		line = append(line, byte(l.flags(e)))
		hash.Write(line)
	}
	hash.Sum(sum[:0])
	return sum
}
