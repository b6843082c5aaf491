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
	supplements []supplement
	wanted      []string // canonicals of the supplements that imported value sets name
	unchecked   []string // canonicals of the code systems that are not here and of which codes are listed
	applied     []applied
	versioned   bool // the version of each code is to be told
	merged      bool // names versions of a code system, whose codes are the same nevertheless
	byVersion   bool // a code is another one in each version of its code system
	tree        bool // may be shown as a tree
	filtered    bool // an include has a filter
	shape       *tree
	digest      [sha256.Size]byte
	searcher    *searcher
}

// supplement is a code system by which another one is supplemented.
type supplement struct{ of, by uint32 }

// applied is a parameter of the request that had an effect.
type applied struct{ name, value string }

// leaveUnchecked notes that codes are listed of a code system that is not here.
func (x *expansion) leaveUnchecked(canonical string) {
	if !slices.Contains(x.unchecked, canonical) {
		x.unchecked = append(x.unchecked, canonical)
	}
}

// apply notes that a parameter had an effect.
func (x *expansion) apply(name, value string) {
	if a := (applied{name: name, value: value}); !slices.Contains(x.applied, a) {
		x.applied = append(x.applied, a)
	}
}

// code returns an entry's code.
func (l *Library) code(e entry) []byte {
	if e.concept != none {
		return l.codeSystems[e.codeSystem].codeOf(e.concept)
	}
	table, row := l.row(e.listed)
	return table.texts.at(table.code[row])
}

// display returns an entry's display: the value set's own, else the code system's, else nil.
func (l *Library) display(e entry) []byte {
	if own := l.ownDisplay(e); len(own) > 0 || e.concept == none {
		return own
	}
	return l.codeSystems[e.codeSystem].displayOf(e.concept)
}

// ownDisplay returns the display that the value set itself gives for an entry, or nil.
func (l *Library) ownDisplay(e entry) []byte {
	if e.listed == 0 {
		return nil
	}
	table, row := l.row(e.listed)
	return table.texts.at(table.display[row])
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
	table, row := l.row(e.listed)
	return table.system[row]
}

// seal works out what the answer says of the expansion as a whole.
func (l *Library) seal(x *expansion, b *budget) (err error) {
	x.entries = slices.Clip(x.entries)
	if x.tree {
		if err := b.spend(len(x.entries)); err != nil {
			return err
		}
		x.shape = l.shape(x.entries, x.filtered)
	}
	x.digest, err = l.digest(x, b)
	x.searcher = new(searcher)
	return err
}

// digest is a hash over all that the entries say, so that two expansions have the same one exactly if
// they have the same content.
func (l *Library) digest(x *expansion, b *budget) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	var line []byte
	field := func(s []byte) { line = append(append(line, s...), 0xff) } // 0xff is in no UTF-8 text
	for _, index := range x.codeSystems {
		line = line[:0]
		field([]byte(l.codeSystems[index].canonical()))
		hash.Write(line)
	}
	for _, s := range x.supplements {
		line = line[:0]
		field([]byte(l.codeSystems[s.by].canonical()))
		hash.Write(line)
	}
	for _, e := range x.entries {
		line = line[:0]
		field([]byte(l.systems[l.systemOf(e)].url))
		field(l.code(e))
		field(l.display(e))
		if x.versioned && e.concept != none {
			field([]byte(l.codeSystems[e.codeSystem].version))
		}
		line = append(line, byte(l.flags(e)))
		hash.Write(line)
		if err := b.spend(1 + len(line)/plainBytes); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}
