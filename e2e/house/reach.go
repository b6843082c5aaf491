package main

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// manyMethods is the number of methods above which a type counts as large.
const manyMethods = 25

type structure struct {
	name    string
	reached int // number of methods, including those of embedded types of the module
}

// typeFigures returns the figures about the methods of types.
func typeFigures(folder string) ([]figure, error) {
	all, err := structures(folder)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b structure) int { return cmp.Or(b.reached-a.reached, cmp.Compare(a.name, b.name)) })
	many := figure{name: fmt.Sprintf("types that reach over %d methods", manyMethods)}
	for _, s := range all {
		if s.reached > manyMethods {
			many.value++
		}
	}
	maximum := figure{name: "methods that one type reaches"}
	if len(all) > 0 {
		maximum.value, maximum.where = all[0].reached, all[0].name
	}
	return []figure{many, maximum}, nil
}

// structures returns the named types in the module, except those of test support.
func structures(folder string) (all []structure, err error) {
	found, err := packages.Load(&packages.Config{
		Dir: folder, Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedModule | packages.NeedTypes | packages.NeedSyntax,
	}, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		name := strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")
		if strings.Contains(name+"/", "test/") {
			continue
		}
		for _, symbol := range p.Types.Scope().Names() {
			declared := p.Types.Scope().Lookup(symbol)
			named, ok := declared.Type().(*types.Named)
			if _, isType := declared.(*types.TypeName); ok && isType && named.Obj() == declared {
				all = append(all, structure{name + "." + symbol, reachableMethods(named, p.Module.Path)})
			}
		}
	}
	return all, nil
}

// reachableMethods counts the module's own methods that can be called on a type or on a pointer to it,
// including those of embedded types.
func reachableMethods(named *types.Named, module string) (n int) {
	var t types.Type = named
	if !types.IsInterface(named) {
		t = types.NewPointer(named)
	}
	for m := range types.NewMethodSet(t).Methods() {
		if p := m.Obj().Pkg(); p != nil && (p.Path() == module || strings.HasPrefix(p.Path(), module+"/")) {
			n++
		}
	}
	return n
}
