package bcp47

import (
	"fmt"
	"strings"
)

// fault returns the error that something is wrong at a column of a tag, which counts from 1.
func fault(column int, format string, args ...any) error {
	return fmt.Errorf("at column %d: %s", column, fmt.Sprintf(format, args...))
}

// caseFault is the fault of a tag that is to be written in another case.
func caseFault(code, written string) error {
	i := 0
	for code[i] == written[i] {
		i++
	}
	start := strings.LastIndexByte(code[:i], '-') + 1
	length := strings.IndexByte(code[start:]+"-", '-')
	return fault(start+1, "%q is written %q; the tag is %q", code[start:][:length], written[start:][:length], written)
}

// orCaseOfWhole returns the fault of a grandfathered tag in another case, else another fault.
func (r *registry) orCaseOfWhole(code string, other error) error {
	for written := range r.grandfathered {
		if strings.EqualFold(code, written) {
			return caseFault(code, written)
		}
	}
	return other
}

// check tests whether a part of a tag may be there (RFC 5646 §2.2).
func (r *registry) check(parts []subtag, i int) error {
	s, before := parts[i], parts[:i]
	for _, b := range before {
		switch {
		case b.part > s.part, b.part == s.part && s.part < partVariant:
			return fault(s.column, "the %s %q may not follow the %s %q", s.part, s.text, b.part, b.text)
		case s.part == partVariant && b.text == s.text, s.part == partExtension && b.part == s.part && b.text[0] == s.text[0]:
			name, _, _ := strings.Cut(s.text, "-")
			return fault(s.column, "the %s %q is there twice", s.part, name)
		}
	}
	if s.part > partVariant {
		if len(s.text) == 1 {
			return fault(s.column, "the %s %q is empty", s.part, s.text)
		}
		return nil
	}
	rec, ok := r.subtags[s.part][s.text]
	if !ok {
		return fault(s.column, "the %s %q is not registered", s.part, s.text)
	}
	if prefix := rec.first("Prefix"); s.part == partExtLang && prefix != before[0].text {
		return fault(s.column, "the %s %q follows the language %q only", s.part, s.text, prefix)
	}
	return nil
}
