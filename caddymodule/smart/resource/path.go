package resource

import "iter"

// Path is the way from a resource to some of its elements.
type Path struct {
	// Elements are the names of the JSON members on the way: an element of a choice of types has the type in its name,
	// such as valueQuantity.
	Elements []string
	// Type is the FHIR type of what the path leads to.
	Type string
	// System is the code system that the codes at the end are of, if they are of type code and all of one.
	System string
	// Target, if set, leaves of the references at the end those to a resource of this type. (In FHIRPath:
	// where(resolve() is Patient).)
	Target string
	// Filters leave some of the elements on the way.
	Filters []Filter
}

// Filter leaves some of the elements on a path. (In FHIRPath: where(system='phone').)
type Filter struct {
	// Depth is how many names along the path they are.
	Depth int
	// Element is the name of a member, and Value what it must say.
	Element, Value string
}

// Values returns the texts of the elements at the end of a path, those in arrays one by one.
func (r Resource) Values(p Path) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if value, ok := r.Member(p.Elements[0]); ok {
			w := &walk{r, &p, yield}
			w.enter(value, 1)
		}
	}
}

// walk goes a path through a resource.
type walk struct {
	resource Resource
	path     *Path
	yield    func([]byte) bool
}

// enter goes on in a value that is depth names along the path. It reports whether the walk may go on elsewhere.
func (w *walk) enter(value []byte, depth int) bool {
	if value[0] != '[' {
		return w.element(value, depth)
	}
	s := scan{text: value} // not Elements, whose function would put the walk on the heap
	for s.take('[') || s.take(',') {
		if element := s.value(); len(element) > 0 && !w.element(element, depth) {
			return false
		}
	}
	return true
}

// element goes on in a value that is no array.
func (w *walk) element(value []byte, depth int) bool {
	switch {
	case value[0] == 'n' || !w.path.leaves(value, depth):
		return true
	case depth == len(w.path.Elements):
		return !w.resource.refersTo(value, w.path.Target) || w.yield(value)
	}
	next, ok := Field(value, w.path.Elements[depth])
	return !ok || w.enter(next, depth+1)
}

// leaves reports whether the filters leave an element that is depth names along the path.
func (p *Path) leaves(value []byte, depth int) bool {
	for i := range p.Filters {
		f := &p.Filters[i]
		if f.Depth != depth {
			continue
		}
		member, _ := Field(value, f.Element)
		if said, err := text(member); err != nil || string(said) != f.Value {
			return false
		}
	}
	return true
}
