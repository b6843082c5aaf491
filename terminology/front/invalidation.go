package front

// End removes responses and definitions, and returns the number of responses. If it is not known which of them depend on
// what was written, it removes all.
func (s *State) End(e Ending) (n int) {
	if e.isAll() {
		return s.endAll()
	}
	for _, name := range e.Written {
		removed, known := s.endWritten(name)
		if n += removed; !known {
			return n + s.endAll()
		}
	}
	return n + s.endValueSet(e.ValueSet) + s.endCodeSystem(e.CodeSystem)
}

func (s *State) endAll() int {
	s.backend.forget("")
	s.wholes.Forget("")
	if s.cache == nil {
		return 0
	}
	return s.cache.Purge()
}

func (s *State) endWritten(name string) (n int, known bool) {
	s.wholes.Forget("") // it is not known what they were made of
	before, known := s.backend.forget(name)
	return s.invalidate(name) + s.invalidate(before), known
}

func (s *State) endValueSet(url string) int {
	if url == "" {
		return 0
	}
	s.backend.forget(url)
	s.wholes.Forget(url)
	if s.cache == nil {
		return 0
	}
	return s.cache.InvalidateTag(url)
}

func (s *State) endCodeSystem(url string) int {
	if url == "" {
		return 0
	}
	s.backend.forget(url)
	s.wholes.Forget("") // it is not known which have its concepts
	return s.invalidate(url)
}

// changed removes what depends on a definition that changed behind the next handler, unseen here.
func (s *State) changed(url string) {
	e := Ending{}
	if url == "" && s.cache != nil {
		s.cache.Purge()
	}
	if s.invalidate(url); url != "" {
		e.Written = []string{url}
	}
	if s.announce != nil {
		s.announce(e)
	}
}

func (s *State) invalidate(canonical string) int {
	if canonical == "" || s.cache == nil {
		return 0
	}
	return s.cache.InvalidateSystem(canonical)
}
