package compose

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/weights"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// UnknownEntry is no entry.
var UnknownEntry = definitions.Entry{CodeSystem: definitions.None, Concept: definitions.None}

// CodeList holds the codes of a value set in order, each once. It is cached and shared, and must not change.
type CodeList struct {
	used
	traits
	Entries  []definitions.Entry // the codes, in order
	Shape    *Tree               // the tree they form; nil: none
	Digest   [sha256.Size]byte   // of the content
	searcher *searcher
	weights  *weights.Table // of the value set; nil if the code systems' count
}

// used is what the expansion of a value set uses.
type used struct {
	CodeSystems []uint32                // in order of first use
	ValueSets   []*definitions.ValueSet // imported, directly or not
	Supplements []definitions.Supplement
	wanted      []string // canonicals of the supplements that imported value sets name
	Unchecked   []string // canonicals of missing code systems whose codes are listed
	Based       []Basis  // grammars of which only some codes are here
	Unlisted    []uint32 // code systems whose user-assigned codes are left out
	relative    bool     // which codes it has depends on those that it is excluded from
	Applied     []applied
}

// Basis says that the codes of a grammar are those of a value set.
type Basis struct {
	CodeSystem uint32                // its index
	On         *definitions.ValueSet // the value set; nil: those that the code system lists, or that filters select
}

// traits say how codes are compared and shown.
type traits struct {
	Versioned bool // each code is shown with its version
	Merged    bool // several versions are named, but a code is the same in all
	byVersion bool // the same code in two versions is two codes
	Tree      bool // may be shown as a tree
	Filtered  bool // an include has a filter
}

// applied is a parameter of the request that had an effect.
type applied struct{ Name, Value string }

func (u *used) apply(name, value string) {
	definitions.AddTo(&u.Applied, applied{Name: name, Value: value})
}

// maxLanguages bounds for how many languages an expansion keeps divisions: anyone may ask in any language. Beyond it
// they are dropped.
const maxLanguages = 16

// searcher holds the divisions of one expansion, by language. They are made on first use.
type searcher struct {
	mu        sync.Mutex
	divisions map[string]*madeDivision // by list of languages
	searched  atomic.Bool
}

// division is an expansion's entries in searchable parts: runs of concepts in code system order, which the code
// system's index finds, and the rest.
type division struct {
	Searched []textindex.Part
	Entries  []func(doc uint32) definitions.Entry // by part: the entry of a document
}

// look returns the division for a list of languages if it has been made.
func (s *searcher) look(list string) (*division, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made, ok := s.divisions[list]
	if !ok || !made.ready.Load() {
		return nil, false
	}
	return made.division(), true
}

// get returns the division for a list of languages, made once. Requests for other languages do not wait.
func (s *searcher) get(list string, divide func() *division) *division {
	s.mu.Lock()
	made, ok := s.divisions[list]
	if !ok {
		if s.divisions == nil || len(s.divisions) >= maxLanguages {
			s.divisions = make(map[string]*madeDivision)
		}
		made = &madeDivision{division: sync.OnceValue(divide)}
		s.divisions[list] = made
	}
	s.mu.Unlock()
	defer made.ready.Store(true)
	return made.division()
}

type madeDivision struct {
	division func() *division
	ready    atomic.Bool
}
