package compose

import (
	"crypto/sha256"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
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
	if x, ok := e.Cache.get(key); ok {
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
