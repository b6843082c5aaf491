package terminology

import (
	"crypto/sha256"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// expander expands value sets by the rules of one operation.
type expander struct {
	library *Set
	cache   *codeListCache
	rules   *Rules
	budget  *budget
}

// codes returns a value set's expansion, cached or new. Requests for the same expansion wait for one computation, except
// costly ones, which may hold the turn that the computation needs.
func (e *expander) codes(vs *valueSet) (*codeList, error) {
	l := e.library
	if l.base != nil && !l.combined || vs.key == "" || vs.transient {
		return e.expand(vs)
	}
	key := vs.key + e.rules.key()
	if x, ok := e.cache.get(key); ok {
		return x, nil
	}
	if e.budget.isCostly() {
		return e.expandAs(key, vs)
	}
	return e.expandOnce(key, vs)
}

// expandOnce makes an expansion for all requests that are waiting for it.
func (e *expander) expandOnce(key string, vs *valueSet) (*codeList, error) {
	for {
		own := false
		x, err, _ := e.cache.flights.Do(key, func() (any, error) {
			own = true
			return e.expandAs(key, vs)
		})
		if err == nil {
			return x.(*codeList), nil
		}
		if own || !isOwn(err) {
			return nil, err
		}
	}
}

// expandAs makes an expansion and caches it.
func (e *expander) expandAs(key string, vs *valueSet) (*codeList, error) {
	x, err := e.expand(vs)
	if err != nil {
		return nil, err
	}
	e.cache.put(key, x)
	return x, nil
}

func (e *expander) expand(vs *valueSet) (*codeList, error) {
	c := &composer{library: e.library, rules: e.rules, budget: e.budget, done: make(map[*valueSet]*codeList)}
	x, err := c.valueSet(vs)
	if err != nil {
		return nil, err
	}
	var unwanted codesystem.Flags
	if e.rules.ActiveOnly == Yes {
		unwanted |= codesystem.FlagInactive
	}
	if e.rules.ExcludeNotForUI == Yes {
		unwanted |= codesystem.FlagAbstract
	}
	if unwanted != 0 {
		x.entries = slices.DeleteFunc(x.entries, func(entry entry) bool { return e.library.flags(entry)&unwanted != 0 })
	}
	named := slices.Concat(vs.supplements, e.rules.Supplements)
	if err := e.budget.spend(len(x.codeSystems) * (1 + len(named) + len(x.wanted))); err != nil {
		return nil, err
	}
	if x.supplements, err = e.library.requiredSupplements(x.codeSystems, slices.Concat(named, x.wanted)); err != nil {
		return nil, err
	}
	x.weights = e.library.usage.files.Of(vs.url)
	return x, e.seal(x)
}

// seal computes what depends on all entries: the tree and the digest.
func (e *expander) seal(x *codeList) (err error) {
	x.entries = slices.Clip(x.entries)
	if x.tree {
		if err := e.budget.spend(len(x.entries)); err != nil {
			return err
		}
		x.shape = shape(e.library, x.entries, x.filtered)
	}
	x.digest, err = e.digest(x)
	x.searcher = new(searcher)
	return err
}

// digest hashes the content of an expansion: two expansions have the same digest only if they have the same content.
func (e *expander) digest(x *codeList) (sum [sha256.Size]byte, err error) {
	l, hash := e.library, sha256.New()
	var line []byte
	field := func(s []byte) { line = append(append(line, s...), 0xff) } // 0xff is in no UTF-8 text
	for _, index := range x.codeSystems {
		field([]byte(l.codeSystems[index].canonical()))
	}
	for _, s := range x.supplements {
		field([]byte(l.codeSystems[s.by].canonical()))
	}
	hash.Write(line)
	for _, code := range x.entries {
		line = line[:0]
		field([]byte(l.systems[l.systemOf(code)].url))
		field(l.code(code))
		field(l.display(code))
		if x.versioned && code.isKnown() {
			field([]byte(l.codeSystems[code.codeSystem].version))
		}
		line = append(line, byte(l.flags(code)&codesystem.ToldFlags))
		hash.Write(line)
		if err := e.budget.spend(1 + len(line)/plainBytes); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}
