package spec

// owners checks who is said to own what.
func (v *validator) owners() {
	for i := range v.file.Spec.Owners {
		at, o := index("spec.owners", i), &v.file.Spec.Owners[i]
		v.oneOf(at+".owner", string(o.Owner), Owners)
		if len(o.Resources) == 0 {
			v.addf(at+".resources", "is empty; want resources, such as ingresses.extensions")
		}
	}
}
