package definitions

// layer holds values by name over those of another layer, which it hides and never changes: what came with a request, or was
// fetched, over what is loaded.
type layer[V any] struct {
	own    map[string]V
	base   *layer[V] // nil: there is none
	beside bool      // what is added is compared with what base has, and does not simply go before it
}

// over returns an empty layer over this one.
func (l *layer[V]) over(beside bool) layer[V] { return layer[V]{base: l, beside: beside} }

func (l *layer[V]) put(name string, value V) {
	if l.own == nil {
		l.own = make(map[string]V)
	}
	l.own[name] = value
}

// get returns the uppermost value of a name.
func (l *layer[V]) get(name string) (value V, ok bool) {
	for at := l; at != nil && !ok; at = at.base {
		value, ok = at.own[name]
	}
	return value, ok
}

// rival returns what a new value of a name is compared with.
func (l *layer[V]) rival(name string) (value V, ok bool) {
	if l.beside {
		return l.get(name)
	}
	value, ok = l.own[name]
	return value, ok
}
