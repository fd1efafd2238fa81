# Installing is added with the package.
