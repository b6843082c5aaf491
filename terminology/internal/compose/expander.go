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

// Expander expands value sets according to the rules of an operation.
type Expander struct {
	Definitions *definitions.Set // definitions to expand value sets from
	Cache       *CodeListCache   // cache of expansions
	Rules       *Rules           // versions and codes to use
	Budget      *budget.Budget   // budget of the request
}

// Codes returns a cached or new expansion. Requests for the same expansion share one computation. A costly request computes it
// separately because it may hold the slot that the shared computation is waiting for.
func (e *Expander) Codes(vs *definitions.ValueSet) (*CodeList, error) {
	if vs.Key == "" {
		return e.expand(vs)
	}
	key := e.Definitions.RequestDigest.CacheKey() + vs.Key + e.Rules.cacheKey()
	if x, ok := e.Cache.expansions.Get(key); ok {
		return x, nil
	}
	if e.Budget.IsCostly() {
		return e.expandAndCache(key, vs)
	}
	return e.expandOnce(key, vs)
}

// expandOnce computes an expansion once for all concurrent requests.
func (e *Expander) expandOnce(key string, vs *definitions.ValueSet) (*CodeList, error) {
	for {
		own := false
		x, err, _ := e.Cache.flights.Do(key, func() (any, error) {
			own = true
			return e.expandAndCache(key, vs)
		})
		if err == nil {
			return x.(*CodeList), nil
		}
		if own || !budget.IsRequestSpecific(err) {
			return nil, err
		}
	}
}

// expandAndCache computes an expansion and caches it.
func (e *Expander) expandAndCache(key string, vs *definitions.ValueSet) (*CodeList, error) {
	x, err := e.expand(vs)
	if err != nil {
		return nil, err
	}
	e.Cache.put(key, x, definitions.OverlaySize(e.Definitions))
	return x, nil
}

func (e *Expander) expand(vs *definitions.ValueSet) (*CodeList, error) {
	x, err := NewEvaluator(e.Definitions, e.Rules, e.Budget).Evaluate(vs)
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
		x.Entries = slices.DeleteFunc(x.Entries, func(entry definitions.Entry) bool { return e.Definitions.Flags(entry)&unwanted != 0 })
	}
	named := slices.Concat(vs.Supplements, e.Rules.Supplements)
	if err := e.Budget.Charge(len(x.CodeSystems) * (1 + len(named) + len(x.requiredSupplements))); err != nil {
		return nil, err
	}
	if x.Supplements, err = e.Definitions.Systems.RequiredSupplements(x.CodeSystems, slices.Concat(named, x.requiredSupplements)); err != nil {
		return nil, err
	}
	x.weights = e.Definitions.Usage.Files.TableFor(vs.URL)
	return x, e.finalize(x)
}

// finalize computes the tree and the digest of an expansion once all its codes are known.
func (e *Expander) finalize(x *CodeList) (err error) {
	x.Entries = slices.Clip(x.Entries)
	if x.MayBeTree {
		if err := e.Budget.Charge(len(x.Entries)); err != nil {
			return err
		}
		x.Tree = BuildTree(e.Definitions, x.Entries, x.HasFilter)
	}
	x.Digest, err = e.digest(x)
	x.searcher = new(divisionCache)
	return err
}

// digest returns a hash of an expansion's content. Different content results in different digests.
func (e *Expander) digest(x *CodeList) (sum [sha256.Size]byte, err error) {
	l, hash := e.Definitions, sha256.New()
	var line []byte
	field := func(s []byte) { line = append(append(line, s...), 0xff) } // separator: 0xff never occurs in UTF-8 text
	for _, index := range x.CodeSystems {
		field([]byte(l.Systems.CodeSystems[index].Canonical()))
	}
	for _, s := range x.Supplements {
		field([]byte(l.Systems.CodeSystems[s.Supplement].Canonical()))
	}
	hash.Write(line)
	for _, code := range x.Entries {
		line = line[:0]
		field([]byte(l.Systems.List[l.SystemOf(code)].URL))
		field(l.Code(code))
		field(l.Display(code))
		if x.HasVersions && code.HasConcept() {
			field([]byte(l.Systems.CodeSystems[code.CodeSystem].Version))
		}
		line = append(line, byte(l.Flags(code)&codesystem.ReportedFlags))
		hash.Write(line)
		if err := e.Budget.Charge(1 + len(line)/budget.PlainBytesPerStep); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// CodeListCache caches the most recently used expansions. Entries do not expire because definitions are immutable.
type CodeListCache struct {
	expansions      boundedcache.Cache[string, *CodeList]       // cost is the size in entries
	inlineValueSets boundedcache.Cache[string, *inlineValueSet] // cost is the size in bytes

	flights singleflight.Group // expansions that are being computed
}

// NewCodeListCache returns a cache with a capacity of limit entries.
func NewCodeListCache(limit int) *CodeListCache {
	return &CodeListCache{
		expansions:      boundedcache.Cache[string, *CodeList]{MaxCost: int64(limit)},
		inlineValueSets: boundedcache.Cache[string, *inlineValueSet]{MaxCost: int64(limit) * bytesPerCachedEntry},
	}
}

// inlineValueSet is a value set sent with a request, together with the overlay that contains it.
type inlineValueSet struct {
	overlay  *definitions.Set
	valueSet *definitions.ValueSet
}

// inlineValueSet returns a value set sent with a request. It parses the resource unless the value set is cached.
func (c *CodeListCache) inlineValueSet(l *definitions.Set, resource jsontext.Value) (*definitions.Set, *definitions.ValueSet, error) {
	key := l.RequestDigest.CacheKey(resource)
	if p, ok := c.inlineValueSets.Get(key); ok {
		return p.overlay, p.valueSet, nil
	}
	p := &inlineValueSet{overlay: l.Overlay()}
	var err error
	if p.valueSet, err = p.overlay.AddInline(resource); err != nil {
		return nil, nil, err
	}
	if size := int64(definitions.OverlaySize(p.overlay)); size <= c.inlineValueSets.MaxCost {
		c.inlineValueSets.Put(key, p, size)
	}
	return p.overlay, p.valueSet, nil
}

// Limit returns the capacity of the expansion cache in entries.
func (c *CodeListCache) Limit() int { return int(c.expansions.MaxCost) }

// Size of a cached expansion in addition to its entries: a constant number of entries, and one entry per bytesPerCachedEntry
// bytes of its key. The key is included because clients control its length.
const (
	cachedListOverhead  = 30
	bytesPerCachedEntry = 12
)

// put caches an expansion unless it is larger than the capacity. overlay is the size of its overlay in bytes.
func (c *CodeListCache) put(key string, x *CodeList, overlay int) {
	size := len(x.Entries) + cachedListOverhead + (len(key)+overlay)/bytesPerCachedEntry
	if x.Tree != nil {
		size += len(x.Entries) * 2 / 3
	}
	if size <= c.Limit() {
		c.expansions.Put(key, x, int64(size))
	}
}

// UnknownEntry represents a code that does not exist.
var UnknownEntry = definitions.Entry{CodeSystem: definitions.None, Concept: definitions.None}

// CodeList contains the codes of a value set in order, without duplicates. It is cached, shared and immutable.
type CodeList struct {
	dependencies
	traits
	Entries  []definitions.Entry // codes in order
	Tree     *Tree               // tree of the codes; nil if the expansion is a list
	Digest   [sha256.Size]byte   // digest of the expansion's content
	searcher *divisionCache
	weights  weights.Table // usage weights of the value set; nil: weights of the code systems
}

// IsUnclosed reports whether the value set may contain other codes: code systems are loaded only partly or have a grammar.
func (x *CodeList) IsUnclosed(d *definitions.Set) bool {
	return len(x.GrammarBases) > 0 || len(x.UserAssignedOmitted) > 0 || slices.ContainsFunc(x.CodeSystems, func(index uint32) bool {
		return d.Systems.CodeSystems[index].Content != definitions.ContentComplete
	})
}

// dependencies contains the definitions that an expansion depends on.
type dependencies struct {
	CodeSystems         []uint32                // indexes in order of first use
	ValueSets           []*definitions.ValueSet // direct and indirect imports
	Supplements         []definitions.Supplement
	requiredSupplements []string       // canonicals of supplements that imported value sets require
	UncheckedSystems    []string       // canonicals of missing code systems with enumerated codes
	GrammarBases        []GrammarBasis // grammars of which the expansion lists only some codes
	OpenGrammars        []OpenGrammar  // code systems with expressions, of which only the concepts are listed
	UserAssignedOmitted []uint32       // code systems with omitted user-assigned codes
	dependsOnExcludes   bool           // the codes depend on the entries from which they are excluded
	AppliedParameters   []appliedParameter
}

// GrammarBasis identifies the value set that provides the codes of a grammar.
type GrammarBasis struct {
	CodeSystem uint32                // index in SystemTable.CodeSystems
	ValueSet   *definitions.ValueSet // value set; nil if the codes also depend on filters
}

// OpenGrammar identifies a code system with concepts and with expressions of them, which cannot be listed.
type OpenGrammar struct {
	CodeSystem uint32 // index in SystemTable.CodeSystems
	HasFilter  bool   // whether the include has filters
}

// traits determine how codes are compared and presented.
type traits struct {
	HasVersions           bool // codes are listed with their version
	MergesVersions        bool // the value set refers to several versions but treats the same code as one
	distinguishesVersions bool // the same code in two versions is two codes
	MayBeTree             bool // the expansion may be a tree
	HasFilter             bool // an include has a filter
}

// appliedParameter is a parameter of the request that affected the expansion.
type appliedParameter struct{ Name, Value string }

func (u *dependencies) recordParameter(name, value string) {
	definitions.AppendUnique(&u.AppliedParameters, appliedParameter{Name: name, Value: value})
}

// maxLanguages is the maximum number of language lists for which an expansion caches divisions. Clients can request arbitrary
// languages, so all divisions are dropped when the limit is reached.
const maxLanguages = 16

// divisionCache caches the divisions of an expansion by language list. A division is built on first use.
type divisionCache struct {
	mu          sync.Mutex
	divisions   map[string]*lazyDivision // by language list
	wasSearched atomic.Bool
}

// division partitions the entries of an expansion for search. Runs of concepts in the order of a code system use the code
// system's index. The other entries form a separate part.
type division struct {
	Parts   []textindex.Part
	EntryAt []func(doc uint32) definitions.Entry // for each part: returns the entry of a document
}

// getIfBuilt returns the division for a language list if it has been built.
func (s *divisionCache) getIfBuilt(list string) (*division, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lazy, ok := s.divisions[list]
	if !ok || !lazy.ready.Load() {
		return nil, false
	}
	return lazy.division(), true
}

// get returns the division for a language list. Building it on first use does not block requests for other languages.
func (s *divisionCache) get(list string, divide func() *division) *division {
	s.mu.Lock()
	lazy, ok := s.divisions[list]
	if !ok {
		if s.divisions == nil || len(s.divisions) >= maxLanguages {
			s.divisions = make(map[string]*lazyDivision)
		}
		lazy = &lazyDivision{division: sync.OnceValue(divide)}
		s.divisions[list] = lazy
	}
	s.mu.Unlock()
	defer lazy.ready.Store(true)
	return lazy.division()
}

type lazyDivision struct {
	division func() *division
	ready    atomic.Bool
}
