package front

// Purge ends the answers made of the value set with this URL, and those with concepts of this code system; all of
// them where both are empty. It says how many there were.
func (s *State) Purge(url, system string) (n int) {
	s.forgetSaved()
	for _, canonical := range []string{url, system} {
		if canonical != "" || url+system == "" {
			s.backend.forget(canonical)
			s.forgetWhole(canonical)
		}
	}
	switch {
	case s.cache == nil:
		return 0
	case url+system == "":
		return s.cache.Purge()
	}
	if url != "" {
		n += s.cache.InvalidateTag(url)
	}
	if system != "" {
		s.forgetWhole("") // which of them hold its concepts is not known
		n += s.cache.InvalidateSystem(system)
	}
	return n
}

// Written ends the answers made of the definitions with these names, canonicals or references, or of what
// depends on them; all where it is not sure that these are all.
func (s *State) Written(names []string, sure bool) {
	s.forgetSaved()
	s.forgetWhole("") // what they are made of is not known, as with all that others expanded
	for _, name := range names {
		if name == "" {
			continue
		}
		before, known := s.backend.forget(name)
		sure = sure && known
		for _, canonical := range []string{name, before} {
			s.forgetCanonical(canonical)
		}
	}
	if !sure {
		s.Purge("", "")
	}
}

// changed ends what depends on a definition that was found to be another one, written past us.
func (s *State) changed(url string) {
	if s.cache == nil {
		return
	}
	if url == "" {
		s.cache.Purge()
	}
	s.forgetCanonical(url)
}

func (s *State) forgetCanonical(canonical string) {
	if canonical != "" && s.cache != nil {
		s.cache.InvalidateSystem(canonical)
	}
}

func (s *State) forgetWhole(canonical string) {
	if s.wholes != nil {
		s.wholes.Forget(canonical)
	}
}
