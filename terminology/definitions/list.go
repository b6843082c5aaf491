package definitions

import "slices"

// AddTo adds values to a list, each once.
func AddTo[T comparable](list *[]T, values ...T) {
	for _, value := range values {
		if !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
}
