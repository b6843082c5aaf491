package main

import (
	"go/types"
	"strings"
)

// ours reports whether an object is declared in the module.
func ours(o types.Object, module string) bool {
	return o.Pkg() != nil && (o.Pkg().Path() == module || strings.HasPrefix(o.Pkg().Path(), module+"/"))
}

// reachableMethods counts the module's own methods that can be called on a type or on a pointer to it, those of
// embedded types included.
func reachableMethods(named *types.Named, module string) (n int) {
	var t types.Type = named
	if !types.IsInterface(named) {
		t = types.NewPointer(named)
	}
	for m := range types.NewMethodSet(t).Methods() {
		n += count(ours(m.Obj(), module))
	}
	return n
}

// reachableFields counts the fields of a structure, and in place of an embedded structure of the module its fields.
func reachableFields(s *types.Struct, module string, seen map[types.Type]bool) (n int) {
	for f := range s.Fields() {
		if embedded := embeddedStruct(f, module); embedded != nil && !seen[embedded] {
			seen[embedded] = true
			n += reachableFields(embedded.Underlying().(*types.Struct), module, seen)
		} else {
			n++
		}
	}
	return n
}

// embeddedStruct is the module's structure that a field embeds, itself or by a pointer; nil if it does neither.
func embeddedStruct(f *types.Var, module string) *types.Named {
	if !f.Embedded() {
		return nil
	}
	t := f.Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || !ours(named.Obj(), module) {
		return nil
	}
	if _, ok := named.Underlying().(*types.Struct); !ok {
		return nil
	}
	return named
}

// sharesMethods reports whether a structure embeds one of the module that has methods.
func sharesMethods(s *types.Struct, module string) bool {
	for f := range s.Fields() {
		if embedded := embeddedStruct(f, module); embedded != nil && reachableMethods(embedded, module) > 0 {
			return true
		}
	}
	return false
}
