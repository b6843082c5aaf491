package compose

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/weights"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Expander expands value sets by the rules of one operation.
type Expander struct {
	Library *definitions.Set // the definitions
	Cache   *CodeListCache   // of expansions
	Rules   *Rules           // of the operation
	Budget  *budget.Budget   // of the request
}

// Codes returns a value set's expansion, cached or new. Requests for the same expansion wait for one computation, except
// costly ones, which may hold the turn that the computation needs.
func (e *Expander) Codes(vs *definitions.ValueSet) (*CodeList, error) {
	if vs.Key == "" {
		return e.expand(vs)
	}
	key := e.Library.Sent.Key() + vs.Key + e.Rules.key()
	if x, ok := e.Cache.items.Get(key); ok {
		return x, nil
	}
	if e.Budget.IsCostly() {
		return e.expandAs(key, vs)
	}
	return e.expandOnce(key, vs)
}

// expandOnce makes an expansion for all requests that are waiting for it.
func (e *Expander) expandOnce(key string, vs *definitions.ValueSet) (*CodeList, error) {
	for {
		own := false
		x, err, _ := e.Cache.flights.Do(key, func() (any, error) {
			own = true
			return e.expandAs(key, vs)
		})
		if err == nil {
			return x.(*CodeList), nil
		}
		if own || !budget.IsOwn(err) {
			return nil, err
		}
	}
}

// expandAs makes an expansion and caches it.
func (e *Expander) expandAs(key string, vs *definitions.ValueSet) (*CodeList, error) {
	x, err := e.expand(vs)
	if err != nil {
		return nil, err
	}
	e.Cache.put(key, x, definitions.OverlaySize(e.Library))
	return x, nil
}

func (e *Expander) expand(vs *definitions.ValueSet) (*CodeList, error) {
	x, err := NewEvaluator(e.Library, e.Rules, e.Budget).ValueSet(vs)
	if err != nil {
		return nil, err
	}
	var unwanted codesystem.Flags
	if e.Rules.ActiveOnly == parameters.Yes {
		unwanted |= codesystem.FlagInactive
	}
	if e.Rules.ExcludeNotForUI == parameters.Yes {
		unwanted |= codesystem.FlagAbstract
	}
	if unwanted != 0 {
		x.Entries = slices.DeleteFunc(x.Entries, func(entry definitions.Entry) bool { return e.Library.Flags(entry)&unwanted != 0 })
	}
	named := slices.Concat(vs.Supplements, e.Rules.Supplements)
	if err := e.Budget.Spend(len(x.CodeSystems) * (1 + len(named) + len(x.wanted))); err != nil {
		return nil, err
	}
	if x.Supplements, err = e.Library.Systems.RequiredSupplements(x.CodeSystems, slices.Concat(named, x.wanted)); err != nil {
		return nil, err
	}
	x.weights = e.Library.Usage.Files.Of(vs.URL)
	return x, e.seal(x)
}

// seal computes what depends on all entries: the tree and the digest.
func (e *Expander) seal(x *CodeList) (err error) {
	x.Entries = slices.Clip(x.Entries)
	if x.Tree {
		if err := e.Budget.Spend(len(x.Entries)); err != nil {
			return err
		}
		x.Shape = Shape(e.Library, x.Entries, x.Filtered)
	}
	x.Digest, err = e.digest(x)
	x.searcher = new(searcher)
	return err
}

// digest hashes the content of an expansion: two expansions have the same digest only if they have the same content.
func (e *Expander) digest(x *CodeList) (sum [sha256.Size]byte, err error) {
	l, hash := e.Library, sha256.New()
	var line []byte
	field := func(s []byte) { line = append(append(line, s...), 0xff) } // 0xff is in no UTF-8 text
	for _, index := range x.CodeSystems {
		field([]byte(l.Systems.CodeSystems[index].Canonical()))
	}
	for _, s := range x.Supplements {
		field([]byte(l.Systems.CodeSystems[s.By].Canonical()))
	}
	hash.Write(line)
	for _, code := range x.Entries {
		line = line[:0]
		field([]byte(l.Systems.List[l.SystemOf(code)].URL))
		field(l.Code(code))
		field(l.Display(code))
		if x.Versioned && code.IsKnown() {
			field([]byte(l.Systems.CodeSystems[code.CodeSystem].Version))
		}
		line = append(line, byte(l.Flags(code)&codesystem.ToldFlags))
		hash.Write(line)
		if err := e.Budget.Spend(1 + len(line)/budget.PlainBytes); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// CodeListCache keeps the expansions that were used last. Definitions do not change, so expansions do not expire.
type CodeListCache struct {
	items  boundedcache.Cache[string, *CodeList] // at the cost of their size, in entries
	posted boundedcache.Cache[string, *posted]   // at the cost of their size, in bytes

	flights singleflight.Group // of expansions being made
}

// NewCodeListCache returns a cache of so many entries.
func NewCodeListCache(limit int) *CodeListCache {
	return &CodeListCache{
		items:  boundedcache.Cache[string, *CodeList]{MaxCost: int64(limit)},
		posted: boundedcache.Cache[string, *posted]{MaxCost: int64(limit) * cachedBytes},
	}
}

// posted is a value set from a request, and the overlay that holds it.
type posted struct {
	overlay  *definitions.Set
	valueSet *definitions.ValueSet
}

// inline reads a value set from a request, unless it was read before.
func (c *CodeListCache) inline(l *definitions.Set, resource jsontext.Value) (*definitions.Set, *definitions.ValueSet, error) {
	key := l.Sent.Key(resource)
	if p, ok := c.posted.Get(key); ok {
		return p.overlay, p.valueSet, nil
	}
	p := &posted{overlay: l.Overlay()}
	var err error
	if p.valueSet, err = p.overlay.Inline(resource); err != nil {
		return nil, nil, err
	}
	if size := int64(definitions.OverlaySize(p.overlay)); size <= c.posted.MaxCost {
		c.posted.Put(key, p, size)
	}
	return p.overlay, p.valueSet, nil
}

// Limit returns how many entries are kept.
func (c *CodeListCache) Limit() int { return int(c.items.MaxCost) }

// The size of an expansion beside its entries, in entries: a constant, and one for so many bytes of its key, which a client
// may make as long as it likes.
const (
	cachedSteady = 30
	cachedBytes  = 12
)

// put keeps an expansion, and the overlay of so many bytes that it refers to, unless it alone is larger than the cache.
func (c *CodeListCache) put(key string, x *CodeList, overlay int) {
	size := len(x.Entries) + cachedSteady + (len(key)+overlay)/cachedBytes
	if x.Shape != nil {
		size += len(x.Entries) * 2 / 3
	}
	if size <= c.Limit() {
		c.items.Put(key, x, int64(size))
	}
}

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
	weights  weights.Table // of the value set; nil if the code systems' count
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
