package search

import (
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

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
		p, ok := r.x.Parameters.Lookup(b.resourceType, name)
		switch {
		case !ok && telling[name] == "" && !strings.Contains(name, "."):
			return unknown(b.resourceType, name)
		case !isPlainKey(r.x, b.resourceType, name):
			return message.Forbidden(message.ErrOracle, "_sort by %s is not allowed under these scopes: it may look at other resources.", strconv.Quote(name))
		case len(r.s.branches) > 1 && !p.CanSort():
			return message.Forbidden(message.ErrCostly, "_sort by %s is not possible under these scopes, since several searches are joined.", strconv.Quote(name))
		}
	}
	return nil
}

// less reports whether an entry comes before another one. What has no value comes last, as on HAPI's server.
func (s *plan) less(a, b *message.Entry) bool {
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
func (s *plan) rank(e *message.Entry, key int) searchparam.Rank {
	if e.Ranks == nil {
		e.Ranks = make([]searchparam.Rank, len(s.order))
		for i, k := range s.order {
			if p, ok := s.x.Parameters.Lookup(e.Parsed.Type, k.name); ok {
				e.Ranks[i] = p.Rank(e.Parsed, k.descending)
			}
		}
	}
	return e.Ranks[key]
}
