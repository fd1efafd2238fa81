# Leaves out what is private: Doxygen writes it to its XML all the same.
/^ *private:$/ { match($0, /^ */); end = RLENGTH - 1; hidden = 1 }
hidden && /^ *};/ { match($0, /^ */); if (RLENGTH == end) hidden = 0 }
!hidden { print }
hidden { print "" }
