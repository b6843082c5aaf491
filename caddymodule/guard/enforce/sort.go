package enforce

import (
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// sortKey is one of the parameters of _sort.
type sortKey struct {
	name       string
	descending bool
}

// sort reads _sort, and refuses an order by anything but the resource's own elements.
func (r searchRules) sort(value string) error {
	if r.trust == open && len(r.s.branches) == 1 {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name, descending := strings.CutPrefix(name, "-")
		if err := r.checkSort(name); err != nil {
			return err
		}
		if len(r.s.branches) > 1 {
			r.s.order = append(r.s.order, sortKey{name, descending})
		}
	}
	return nil
}

// checkSort refuses to sort by a reference, since the order may be that of the resources to which they are, and, where
// several searches are joined, by what cannot be evaluated here.
func (r searchRules) checkSort(name string) error {
	for _, b := range r.s.branches {
		p, _ := r.x.parameters.Lookup(b.resourceType, name)
		switch {
		case !r.x.isPlainKey(b.resourceType, name):
			return forbidden(ErrOracle, "_sort by %s is not allowed under these scopes: it may look at other resources.", strconv.Quote(name))
		case len(r.s.branches) > 1 && !p.CanSort():
			return forbidden(ErrCostly, "_sort by %s is not possible under these scopes, since several searches are joined.", strconv.Quote(name))
		}
	}
	return nil
}

// isPlainKey reports whether a key of _sort is about what is in a resource itself.
func (x *searches) isPlainKey(resourceType, name string) bool {
	p, ok := x.parameters.Lookup(resourceType, name)
	return ok && p.Kind != searchparam.Reference && telling[name] == ""
}

// isPlainOrder reports whether all keys of _sort are about what is in a resource itself.
func (x *searches) isPlainOrder(resourceType, value string) bool {
	for key := range strings.SplitSeq(value, ",") {
		if !x.isPlainKey(resourceType, strings.TrimPrefix(key, "-")) {
			return false
		}
	}
	return true
}

// less reports whether an entry comes before another one. What has no value comes last, as on HAPI's server.
func (s *search) less(a, b *entry) bool {
	for i, key := range s.order {
		x, y := s.rank(a, i), s.rank(b, i)
		switch {
		case x.Has != y.Has:
			return x.Has
		case !x.Has:
			continue
		}
		if order := x.Compare(y); order != 0 {
			return order < 0 != key.descending
		}
	}
	return false
}

// rank is where an entry stands by a key, worked out once.
func (s *search) rank(e *entry, key int) searchparam.Rank {
	if e.ranks == nil {
		e.ranks = make([]searchparam.Rank, len(s.order))
		for i, k := range s.order {
			if p, ok := s.x.parameters.Lookup(e.parsed.Type, k.name); ok {
				e.ranks[i] = p.Rank(e.parsed, k.descending)
			}
		}
	}
	return e.ranks[key]
}
