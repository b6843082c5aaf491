package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Search answers [base]/CodeSystem and [base]/ValueSet with the definitions of the library that meet all of
// the parameters url, version, name, title, status and _id (R4 RESTful search). Parameters that are not
// known are ignored, and left out of the link self. A page has _count definitions, 20 where that is not
// given, and at most [Handler.MaxEntries]. See [Handler.Expand] for what is written and returned.
func (h *Handler) Search(w http.ResponseWriter, r *http.Request) error {
	inputs, part, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	s := search{limit: cmp.Or(h.MaxEntries, defaultMaxEntries), count: 20}
	for i := range inputs {
		if err := s.set(&inputs[i]); err != nil {
			return err
		}
	}
	kind, _ := typeAndID(r.URL.Path)
	var found []published
	l := h.current()
	defer runtime.KeepAlive(l)
	for _, p := range l.published(kind) {
		if s.finds(&p) {
			found = append(found, p)
		}
	}
	return f.write(w, r, http.StatusOK, s.bundle(found, part, address(r)))
}

// searchInputs reads the parameters of a read or search: all, the part of the resources that is asked for, and
// the format.
func searchInputs(r *http.Request) (inputs []input, part *subset, f format, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, nil, f, &Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "definitions are read and searched by GET and HEAD only"}
	}
	if inputs, err = queryInputs(r.URL.RawQuery); err != nil {
		return nil, nil, f, err
	}
	part = new(subset)
	for i := range inputs {
		if _, err := part.set(&inputs[i]); err != nil {
			return nil, nil, f, err
		}
	}
	f, err = negotiate(r, inputs)
	return inputs, part, f, err
}

// typeAndID returns the resource type, and the id if there is one, of a path [base]/Type or [base]/Type/id.
func typeAndID(path string) (kind, id string) {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	if last := parts[len(parts)-1]; isResourceType(last) || len(parts) < 2 {
		return last, ""
	}
	return parts[len(parts)-2], parts[len(parts)-1]
}

// address returns the absolute address of a request without its query.
func address(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path}).String()
}

// search is what is searched for.
type search struct {
	tests         []func(p *published) bool
	used          url.Values
	limit         int
	count, offset int
}

// searched are the parameters of a search that a definition is tested by.
var searched = map[string]func(p *published) string{
	"url":     func(p *published) string { return p.url },
	"version": func(p *published) string { return p.version },
	"name":    func(p *published) string { return p.name },
	"title":   func(p *published) string { return p.title },
	"status":  func(p *published) string { return p.status },
	"_id":     func(p *published) string { return p.id },
}

// set takes over one parameter.
func (s *search) set(in *input) error {
	name, modifier, _ := strings.Cut(in.name, ":")
	of, known := searched[name]
	switch {
	case name == "_count" || name == "_offset":
		n, err := number(in)
		if err != nil {
			return err
		}
		if name == "_offset" {
			s.offset = *n
		} else {
			s.count = min(*n, s.limit)
		}
	case known:
		compare, err := comparison(name, modifier)
		if err != nil {
			return err
		}
		wanted := strings.Split(in.value, ",")
		s.tests = append(s.tests, func(p *published) bool {
			return slices.ContainsFunc(wanted, func(value string) bool { return compare(of(p), value) })
		})
	case !slices.Contains([]string{"_summary", "_elements", "_format", "_pretty"}, name):
		return nil
	}
	if s.used == nil {
		s.used = url.Values{}
	}
	s.used.Add(in.name, in.value)
	return nil
}

// comparison returns how a parameter with a modifier compares what a definition has with what is wanted.
func comparison(name, modifier string) (func(has, wanted string) bool, error) {
	isString := name == "name" || name == "title"
	switch {
	case isString && modifier == "":
		return func(has, wanted string) bool { return strings.HasPrefix(fold(has), fold(wanted)) }, nil
	case isString && modifier == "contains":
		return func(has, wanted string) bool { return strings.Contains(fold(has), fold(wanted)) }, nil
	case modifier == "" || isString && modifier == "exact":
		return func(has, wanted string) bool {
			if _, code, ok := strings.Cut(wanted, "|"); ok && name == "status" {
				wanted = code
			}
			return has == wanted
		}, nil
	}
	return nil, badRequest("not-supported", "the modifier :%s of the parameter %s is not supported", modifier, name)
}

// fold makes two strings the same that differ by case or accents only.
func fold(s string) string { return string(new(folder).words([]byte(s))) }

// finds reports whether a definition is what is searched for.
func (s *search) finds(p *published) bool {
	return !slices.ContainsFunc(s.tests, func(test func(p *published) bool) bool { return !test(p) })
}

// bundle returns the Bundle of type searchset.
func (s *search) bundle(found []published, part *subset, address string) []byte {
	dst := []byte(`{"resourceType":"Bundle","type":"searchset","total":`)
	dst = strconv.AppendInt(dst, int64(len(found)), 10)
	links := array{name: "link"}
	dst = s.appendLink(links.next(dst), "self", address, s.offset)
	from := min(s.offset, len(found))
	to := min(from+s.count, len(found))
	if part.summary == "count" {
		to = from
	} else if to < len(found) && s.count > 0 {
		dst = s.appendLink(links.next(dst), "next", address, to)
	}
	dst = links.end(dst)
	entries := array{name: "entry"}
	for i := range found[from:to] {
		p := &found[from+i]
		dst = append(entries.next(dst), '{')
		if p.id != "" {
			dst = append(appendString(append(dst, `"fullUrl":`...), address+"/"+p.id), ',')
		}
		dst = append(p.append(append(dst, `"resource":`...), part), `,"search":{"mode":"match"}}`...)
	}
	return append(entries.end(dst), '}')
}

// appendLink appends the link to a page of the same search.
func (s *search) appendLink(dst []byte, relation, address string, offset int) []byte {
	query := url.Values{}
	for name, values := range s.used {
		query[name] = values
	}
	if query.Del("_offset"); offset > 0 {
		query.Set("_offset", strconv.Itoa(offset))
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	dst = append(dst, fmt.Sprintf(`{"relation":%q,"url":`, relation)...)
	return append(appendString(dst, address), '}')
}
