package terminology

import "fmt"

// valueSet is a ValueSet with its compose as it is needed for expansion.
type valueSet struct {
	definition
	activeOnly       bool // compose.inactive is false: inactive codes are left out
	composed         bool // has a compose
	include, exclude []conceptSet
}

// conceptSet is one of ValueSet.compose.include or exclude.
type conceptSet struct {
	system     string
	version    string
	enumerated bool // has concept: the rows of Library.listed from first up to last
	first      uint32
	last       uint32
	filters    []filter
	valueSets  []string // canonicals
}

// filter is one of ValueSet.compose.include.filter.
type filter struct{ property, op, value string }

// listed holds the concepts that value sets list one by one, of all value sets together; row 0 is not
// used. A code is kept as text, since the code system it is from need not be here.
type listed struct {
	texts   texts
	code    []textRef
	display []textRef // 0 where the value set gives none
	system  []uint32  // index in Library.systems
}

// valueSetBuilder reads a ValueSet.
type valueSetBuilder struct {
	library *Library
	vs      valueSet
}

// compose reads ValueSet.compose.
func (b *valueSetBuilder) compose(r *reader) error {
	b.vs.composed = true
	return r.object(func(name []byte) error {
		switch string(name) {
		case "inactive":
			var inactive bool
			err := r.bool(&inactive)
			b.vs.activeOnly = !inactive
			return err
		case "include":
			return r.array(func() error { return b.conceptSet(r, &b.vs.include) })
		case "exclude":
			return r.array(func() error { return b.conceptSet(r, &b.vs.exclude) })
		default:
			return r.skip()
		}
	})
}

// conceptSet reads one of compose.include or exclude and appends it to list.
func (b *valueSetBuilder) conceptSet(r *reader, list *[]conceptSet) error {
	var set conceptSet
	set.first = uint32(len(b.library.listed.code))
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.string(&set.system)
		case "version":
			return r.string(&set.version)
		case "concept":
			set.enumerated = true
			return r.array(func() error { return b.concept(r) })
		case "filter":
			return r.array(func() error { return b.filter(r, &set) })
		case "valueSet":
			return r.array(func() error { return b.imported(r, &set) })
		default:
			return r.skip()
		}
	})
	set.last = uint32(len(b.library.listed.code))
	if set.enumerated {
		system := b.library.internSystem(set.system)
		for range set.last - set.first {
			b.library.listed.system = append(b.library.listed.system, system)
		}
	}
	*list = append(*list, set)
	return err
}

// imported reads the canonical of a value set.
func (b *valueSetBuilder) imported(r *reader, set *conceptSet) error {
	var url string
	err := r.string(&url)
	set.valueSets = append(set.valueSets, url)
	return err
}

// filter reads one of compose.include.filter.
func (b *valueSetBuilder) filter(r *reader, set *conceptSet) error {
	var f filter
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "property":
			return r.string(&f.property)
		case "op":
			return r.string(&f.op)
		case "value":
			return r.string(&f.value)
		default:
			return r.skip()
		}
	})
	set.filters = append(set.filters, f)
	return err
}

// concept reads one of compose.include.concept into a row.
func (b *valueSetBuilder) concept(r *reader) error {
	var code, display textRef
	rows := &b.library.listed
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "code":
			s, err := r.text()
			code = rows.texts.append(s)
			return err
		case "display":
			s, err := r.text()
			display = rows.texts.append(s)
			return err
		default:
			return r.skip()
		}
	})
	if err == nil && len(rows.texts.at(code)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.pointer())
	}
	rows.code = append(rows.code, code)
	rows.display = append(rows.display, display)
	return err
}
