package terminology

import "math"

// page returns the entries that were asked for, and how many match in all. Displays are looked for in the
// given list of languages, or in the code systems' own where it is empty.
func (l *Library) page(x *expansion, p *parameters, list string) (page []entry, total int, err error) {
	if p.filter != nil {
		if filter := newTextFilter(*p.filter); filter != nil {
			from, to := p.window(math.MaxInt)
			return l.search(x, filter, list, from, to, p.budget)
		}
	}
	from, to := p.window(len(x.entries))
	return x.entries[from:to], len(x.entries), nil
}

// window returns the range of the page in a list of n entries.
func (p *parameters) window(n int) (from, to int) {
	to = n
	if p.offset != nil {
		from = min(*p.offset, n)
	}
	if p.count != nil {
		to = min(from+*p.count, n)
	}
	return from, to
}
